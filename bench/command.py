"""The program that trials run, and running it."""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
CENOTE = os.environ.get("CENOTE", f"{HERE}/../target/release/cenote")


def run(*args):
    """What it prints; the trial ends if it fails."""
    ran = subprocess.run([CENOTE, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if ran.returncode != 0:
        sys.exit(f"cenote {' '.join(args)}: {ran.stderr}{ran.stdout}")
    return ran.stdout
