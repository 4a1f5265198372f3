//! Samples of what processors do: `perf_event_open(2)`, from outside of the processes.
//!
//! Each processor has a software clock (no counter of the hardware is needed, so it works in virtual machines), and notes at
//! each beat which thread it runs, the functions of the kernel that it is in, and the registers and stack of the program.
//! Samples of other processes are dropped as they are read.

use std::io;

use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};

/// Samples a second of each processor.
pub const SAMPLES_PER_S: u64 = 97;
/// Bytes of a stack that are kept: callers further out are lost.
const STACK_BYTES: u32 = 16 << 10;
/// Bytes of the buffer of each processor.
const BUFFER_BYTES: usize = 4 << 20;
/// Where a list of callers changes between kernel and program is a number that is no address.
const CONTEXT: u64 = u64::MAX - 4095;

/// Numbers of registers as `perf_event_open` counts them: frame pointer, stack pointer, instruction pointer.
#[cfg(target_arch = "x86_64")]
const REGISTERS: [u32; 3] = [6, 7, 8];
/// Frame pointer, return address, stack pointer, instruction pointer.
#[cfg(target_arch = "aarch64")]
const REGISTERS: [u32; 4] = [29, 30, 31, 32];

/// What a processor did at one moment.
pub struct CpuSample {
    /// The process and the thread.
    pub process: u32,
    #[allow(missing_docs)] // see above
    pub thread: u32,
    /// Nanoseconds of the monotonic clock.
    pub at_ns: u64,
    /// Addresses in the kernel, the innermost first.
    pub kernel: Vec<u64>,
    /// Registers of the program in the order of [`REGISTERS`]; none of a thread of the kernel.
    pub registers: Vec<u64>,
    /// Its stack from the stack pointer on.
    pub stack: Vec<u8>,
}

/// The clocks of all processors.
pub struct CpuSampler {
    samplers: Vec<Sampler>,
}

impl CpuSampler {
    /// Begins. Errors: the kernel has no such clocks, or does not let this user have them.
    pub fn begin() -> io::Result<CpuSampler> {
        let samplers: io::Result<Vec<Sampler>> = online_processors().map(sampler_of).collect();
        samplers.map(|samplers| CpuSampler { samplers })
    }

    /// Hands over the samples of `processes` since the last time; how many the kernel had to drop.
    pub fn drain(&mut self, processes: &[u32], mut each: impl FnMut(CpuSample)) -> u64 {
        let mut lost = 0;
        for sampler in &mut self.samplers {
            while let Some(record) = sampler.next_record() {
                match record.parse_record() {
                    Ok(Record::Sample(sample)) => {
                        let is_wanted = sample.pid().is_some_and(|pid| processes.contains(&pid));
                        if let Some(sample) = is_wanted.then(|| taken(&sample)).flatten() {
                            each(sample);
                        }
                    }
                    Ok(Record::Lost(some)) => lost += some.lost,
                    // pauses of the clock, and threads of the kernel, whose samples have no registers and cannot be parsed
                    _ => {}
                }
            }
        }
        lost
    }
}

fn sampler_of(processor: usize) -> io::Result<Sampler> {
    let flags =
        SampleFlag::TID | SampleFlag::TIME | SampleFlag::CALLCHAIN | SampleFlag::REGS_USER | SampleFlag::STACK_USER;
    let mut builder = Builder::new(Software::CPU_CLOCK);
    builder.any_pid().one_cpu(processor).sample_frequency(SAMPLES_PER_S).sample(flags);
    builder.sample_regs_user(REGISTERS.iter().map(|register| 1 << register).sum()).sample_stack_user(STACK_BYTES);
    builder.exclude_callchain_user(true).exclude_kernel(false).clockid(Clock::MONOTONIC).enabled(true);
    builder.build()?.sampled(BUFFER_BYTES)
}

/// Numbers of the processors that run.
fn online_processors() -> impl Iterator<Item = usize> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_else(|_| "0".to_owned());
    processors_of(list.trim()).into_iter()
}

/// Those of a list as the kernel writes it: `0-3,5`.
fn processors_of(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

fn taken(sample: &perf_event::data::Sample<'_>) -> Option<CpuSample> {
    let kernel = sample.callchain().unwrap_or_default().iter().copied().filter(|&address| address < CONTEXT).collect();
    let registers = sample.regs_user().map(|registers| registers.regs.to_vec()).unwrap_or_default();
    Some(CpuSample {
        process: sample.pid()?,
        thread: sample.tid()?,
        at_ns: sample.time()?,
        kernel,
        registers,
        stack: sample.stack_user().unwrap_or_default().to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors() {
        assert_eq!(processors_of("0-3,5"), [0, 1, 2, 3, 5]);
        assert_eq!(processors_of("0"), [0]);
        assert_eq!(processors_of("a-b,,7-"), [0usize; 0]);
    }
}
