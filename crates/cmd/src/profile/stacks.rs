//! Names of the functions that a sample was in: unwinding by the programs' own tables, and their symbols.
//!
//! ```text
//!   registers, stack ─▶ framehop with .eh_frame of each file that is mapped ─▶ addresses ─▶ blazesym ─▶ names
//! ```
//!
//! Files are read once for each process. What has no table ends the list, and what has no symbol is told by its file.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use blazesym::Pid;
use blazesym::symbolize::source::{Kernel, Process, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder};
use object::{Object, ObjectSection};

use super::samples::CpuSample;

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{CacheAarch64 as Cache, UnwindRegsAarch64 as Registers, UnwinderAarch64 as NativeUnwinder};
#[cfg(target_arch = "x86_64")]
use framehop::x86_64::{CacheX86_64 as Cache, UnwindRegsX86_64 as Registers, UnwinderX86_64 as NativeUnwinder};

/// Callers that are looked for.
const FRAMES_MAX: usize = 128;
/// Bytes of a file that is read for its tables.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Names that are kept.
const NAMES_MAX: usize = 1 << 18;
/// Stands for an address of the kernel in the table of names.
const KERNEL: u32 = 0;

type Bytes = Arc<[u8]>;

/// Finds names.
#[derive(Default)]
pub struct StackReader {
    symbolizer: Symbolizer,
    processes: HashMap<u32, ProcessCode>,
    names: HashMap<(u32, u64), Arc<str>>,
}

struct ProcessCode {
    unwinder: NativeUnwinder<Bytes>,
    cache: Cache,
}

impl StackReader {
    /// Names of the functions of a sample, the innermost first, those of the kernel before those of the program.
    pub fn names(&mut self, sample: &CpuSample) -> Vec<Arc<str>> {
        let code = self.processes.entry(sample.process).or_insert_with(|| ProcessCode::of(sample.process));
        let program = code.frames(sample);
        let kernel = self.named(KERNEL, &sample.kernel);
        let program = self.named(sample.process, &program);
        kernel.into_iter().chain(program).collect()
    }

    /// Names of addresses, in the kernel or in a process.
    fn named(&mut self, process: u32, addresses: &[u64]) -> Vec<Arc<str>> {
        let unknown: Vec<u64> =
            addresses.iter().copied().filter(|address| !self.names.contains_key(&(process, *address))).collect();
        if !unknown.is_empty() && self.names.len() < NAMES_MAX {
            let source = match process {
                KERNEL => Source::Kernel(Kernel::default()),
                pid => Source::Process(Process { debug_syms: false, perf_map: false, ..Process::new(Pid::from(pid)) }),
            };
            let found = self.symbolizer.symbolize(&source, Input::AbsAddr(&unknown)).unwrap_or_default();
            let nameless: Arc<str> = if process == KERNEL { "[kernel]" } else { "[program]" }.into();
            for (n, address) in unknown.into_iter().enumerate() {
                let name = match found.get(n) {
                    Some(Symbolized::Sym(symbol)) => plain(&symbol.name).into(),
                    _ => nameless.clone(),
                };
                self.names.insert((process, address), name);
            }
        }
        addresses.iter().filter_map(|address| self.names.get(&(process, *address)).cloned()).collect()
    }
}

impl ProcessCode {
    fn of(process: u32) -> ProcessCode {
        let mut unwinder = NativeUnwinder::new();
        let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        for file in mapped_files(&maps) {
            if let Some(module) = module(process, &file) {
                unwinder.add_module(module);
            }
        }
        ProcessCode { unwinder, cache: Cache::new() }
    }

    /// Addresses that the program is in, the innermost first.
    fn frames(&mut self, sample: &CpuSample) -> Vec<u64> {
        let Some((at, registers, stack_at)) = registers(&sample.registers) else { return Vec::new() };
        let word = |address: u64| {
            let offset = usize::try_from(address.checked_sub(stack_at).ok_or(())?).map_err(drop)?;
            let bytes = sample.stack.get(offset..).and_then(|rest| rest.first_chunk()).ok_or(())?;
            Ok(u64::from_ne_bytes(*bytes))
        };
        let mut frames = Vec::new();
        let mut word = word;
        let mut callers = self.unwinder.iter_frames(at, registers, &mut self.cache, &mut word);
        while let Ok(Some(frame)) = callers.next() {
            frames.push(frame.address_for_lookup());
            if frames.len() == FRAMES_MAX {
                break;
            }
        }
        frames
    }
}

/// The instruction, all registers for unwinding, and where the stack begins.
#[cfg(target_arch = "x86_64")]
fn registers(values: &[u64]) -> Option<(u64, Registers, u64)> {
    let &[frame, stack, at] = values else { return None };
    Some((at, Registers::new(at, stack, frame), stack))
}

/// The same.
#[cfg(target_arch = "aarch64")]
fn registers(values: &[u64]) -> Option<(u64, Registers, u64)> {
    let &[frame, back, stack, at] = values else { return None };
    Some((at, Registers::new(back, stack, frame), stack))
}

/// A file that is mapped, with its code.
#[derive(Debug, PartialEq, Eq)]
struct MappedFile {
    path: String,
    begin: u64,
    end: u64,
}

/// The files of `/proc/PID/maps` of which something can be executed, each with the range of all its mappings from its
/// beginning on.
fn mapped_files(maps: &str) -> Vec<MappedFile> {
    let mut files: Vec<(MappedFile, bool)> = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(rights), Some(offset)) = (words.next(), words.next(), words.next()) else { continue };
        let Some(path) = words.nth(2).filter(|path| path.starts_with('/')) else { continue };
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let Some((begin, end)) = range.split_once('-').and_then(|(begin, end)| number(begin).zip(number(end))) else {
            continue;
        };
        let is_code = rights.contains('x');
        match files.last_mut() {
            Some((file, has_code)) if file.path == path && number(offset) != Some(0) => {
                file.end = end;
                *has_code |= is_code;
            }
            _ => files.push((MappedFile { path: path.to_owned(), begin, end }, is_code)),
        }
    }
    files.into_iter().filter(|(_, has_code)| *has_code).map(|(file, _)| file).collect()
}

/// The tables of a mapped file; `None` if it has none that can be read.
fn module(process: u32, mapped: &MappedFile) -> Option<Module<Bytes>> {
    let at = format!("/proc/{process}/root{}", mapped.path);
    // the program itself may be replaced by now
    let exe = format!("/proc/{process}/exe");
    let is_exe = std::fs::read_link(&exe).is_ok_and(|path| path == Path::new(&mapped.path));
    let at = if is_exe { exe } else { at };
    let length = std::fs::metadata(&at).ok()?.len();
    let bytes = (length <= FILE_BYTES_MAX).then(|| std::fs::read(&at).ok()).flatten()?;
    let file = object::File::parse(&*bytes).ok()?;
    let range =
        |name: &str| file.section_by_name(name).map(|section| section.address()..section.address() + section.size());
    let data = |name: &str| file.section_by_name(name).and_then(|section| section.data().ok()).map(Bytes::from);
    let sections = ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: range(".text"),
        text: data(".text"),
        got_svma: range(".got"),
        eh_frame_svma: range(".eh_frame"),
        eh_frame: data(".eh_frame"),
        eh_frame_hdr_svma: range(".eh_frame_hdr"),
        eh_frame_hdr: data(".eh_frame_hdr"),
        ..Default::default()
    };
    Some(Module::new(mapped.path.clone(), mapped.begin..mapped.end, mapped.begin, sections))
}

/// A name without the hash that the compiler adds.
fn plain(name: &str) -> &str {
    match name.rsplit_once("::h") {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => name,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_map() {
        let maps = "55e0-55e8 r--p 00000000 fd:00 12 /usr/bin/a b\n\
                    55e8-56e8 r-xp 00008000 fd:00 12 /usr/bin/a b\n\
                    7f00-7f10 rw-p 00000000 00:00 0 \n\
                    7f10-7f20 r--s 00000000 00:05 9 /dev/data\n\
                    7f20-7f30 r--p 00000000 fd:00 3 /lib/c.so\n\
                    7f30-7f40 r-xp 00010000 fd:00 3 /lib/c.so\n\
                    nonsense\n7fff-8000 r-xp 00000000 00:00 0 [vdso]\n";
        let file = |path: &str, begin, end| MappedFile { path: path.to_owned(), begin, end };
        assert_eq!(mapped_files(maps), [file("/usr/bin/a", 0x55e0, 0x56e8), file("/lib/c.so", 0x7f20, 0x7f40)]);
    }

    #[test]
    fn names_lose_their_hash() {
        assert_eq!(plain("a::b::h0123456789abcdef"), "a::b");
        assert_eq!(plain("a::hello"), "a::hello");
    }
}
