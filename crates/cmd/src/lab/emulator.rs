//! The process that emulates devices: `cenote emulate`, which ends when the lab does, however that ends.
//!
//! It is a process of its own because the kernel does not end one that waits for a file system whose device is served by
//! that same process. Where it may be, it is scheduled before programs that are measured, so that times are those of the
//! models.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use device::emulated::EmulatedKind;

use super::place::LabPlace;
use crate::tools;

/// How long it may take to end.
const END_TIME: Duration = Duration::from_secs(30);
/// Words that run a program before all that are not of real time.
const REAL_TIME: [&str; 3] = ["chrt", "--rr", "1"];
/// How long a look at what this machine allows may take.
const LOOK_TIME: Duration = Duration::from_secs(5);

/// See the top of the file.
pub struct LabEmulator {
    process: Child,
}

impl LabEmulator {
    /// Serves devices of so many bytes, with their names. Errors, for the user: they cannot be served.
    pub fn start(place: &LabPlace, devices: &[(String, EmulatedKind)], bytes: u64) -> Result<LabEmulator, String> {
        let program = std::env::current_exe().map_err(|e| format!("this program: {e}"))?;
        let mut command = match tools::ask(REAL_TIME[0], &[REAL_TIME[1], REAL_TIME[2], "true"], LOOK_TIME) {
            Ok(answer) if answer.code == Some(0) => {
                let mut command = Command::new(REAL_TIME[0]);
                command.args(&REAL_TIME[1..]).arg(program);
                command
            }
            _ => Command::new(program),
        };
        // the same in each lab, so that labs agree
        command.args(["emulate", "--memory", "--until-eof", "--seed", "0", "--size", &bytes.to_string(), "--at"]);
        command.arg(place.devices()).args(devices.iter().map(|(name, kind)| format!("{kind}={name}")));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // SIGINT of a terminal is for the lab, which ends it in order
        let process = command.process_group(0).spawn().map_err(|e| format!("cenote emulate: {e}"))?;
        let mut emulator = LabEmulator { process };
        // it tells of each device when all of them are there
        let lines = emulator.process.stdout.take().map(|stdout| BufReader::new(stdout).lines());
        if lines.is_some_and(|lines| lines.map_while(Result::ok).take(devices.len()).count() == devices.len()) {
            return Ok(emulator);
        }
        let mut why = String::new();
        // what cannot be read is missing in what the user is told
        let _ = emulator.process.stderr.take().map(|stderr| stderr.take(1024).read_to_string(&mut why));
        let _ = emulator.end();
        Err(why.lines().next().unwrap_or("cenote emulate: it ended").to_owned())
    }

    /// Unmounts the devices, and ends. Errors, for the user: it cannot be ended.
    pub fn end(&mut self) -> Result<(), String> {
        tools::end(&mut self.process, END_TIME).map_err(|e| format!("cenote emulate: {e}"))
    }
}

impl Drop for LabEmulator {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
