//! The memory of the program's own text.

use std::ops::Range;

/// Lets go of the pages of the program's text and constants, which are those of its file: the system has them still, and may
/// take them. They come back as they are used, some at a time.
pub fn give_program_back() {
    #[cfg(all(target_os = "linux", not(miri)))]
    for range in std::fs::read_to_string("/proc/self/maps").map_or_else(|_| Vec::new(), |maps| ranges(&maps, here())) {
        // SAFETY: pages of a file that nobody may write to and that was never relocated read the same afterwards.
        unsafe { libc::madvise(range.start as *mut libc::c_void, range.len(), libc::MADV_DONTNEED) };
    }
}

/// An address within the text.
fn here() -> usize {
    give_program_back as fn() as usize
}

/// The mappings of the file that has an address in its text: the text, and what is before it, from the beginning of the file.
/// What else is read-only was written to by the loader, and is not the file's any more.
fn ranges(maps: &str, within: usize) -> Vec<Range<usize>> {
    let mappings: Vec<(Range<usize>, &str, &str, &str)> = maps.lines().filter_map(mapping).collect();
    let text = mappings.iter().find(|(range, rights, ..)| *rights == "r-xp" && range.contains(&within));
    let Some((text, .., file)) = text else { return Vec::new() };
    let is_first = |rights: &str, offset: &str| rights == "r--p" && offset.bytes().all(|digit| digit == b'0');
    let first = mappings.iter().filter(|(_, rights, offset, of)| of == file && is_first(rights, offset));
    first.map(|(range, ..)| range.clone()).chain([text.clone()]).collect()
}

/// A line of proc_pid_maps(5): addresses, rights, offset and path.
fn mapping(line: &str) -> Option<(Range<usize>, &str, &str, &str)> {
    let mut words = line.splitn(6, ' ');
    let (from, to) = words.next()?.split_once('-')?;
    let address = |text: &str| usize::from_str_radix(text, 16).ok();
    let (rights, offset) = (words.next()?, words.next()?);
    let path = words.nth(2)?.trim_start();
    Some((address(from)?..address(to)?, rights, offset, path)).filter(|_| path.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_loader_never_wrote_to() {
        let maps = "1000-3000 r--p 00000000 fe:00 12 /usr/bin/cenote\n\
            3000-9000 r-xp 00002000 fe:00 12 /usr/bin/cenote\n\
            9000-a000 r--p 00008000 fe:00 12 /usr/bin/cenote\n\
            a000-b000 rw-p 00009000 fe:00 12 /usr/bin/cenote\n\
            b000-c000 rw-p 00000000 00:00 0 [heap]\n\
            d000-e000 r--p 00000000 fe:00 13 /lib/libc.so.6\n\
            e000-f000 r-xp 00001000 fe:00 13 /lib/libc.so.6\n";
        assert_eq!(ranges(maps, 0x4000), [0x1000..0x3000, 0x3000..0x9000]);
        assert_eq!(ranges(maps, 0xe800), [0xd000..0xe000, 0xe000..0xf000]);
        assert!(ranges(maps, 0xb800).is_empty() && ranges("", 0).is_empty());
        assert_eq!(mapping("7f-80 r-xp 0 0:0 1    /a b"), Some((0x7f..0x80, "r-xp", "0", "/a b")));
    }

    #[test]
    fn the_program_goes_on() {
        let constant = "a constant of the program".to_owned();
        for _ in 0..3 {
            give_program_back();
            assert_eq!(constant, "a constant of the program");
        }
        assert!(!ranges(&std::fs::read_to_string("/proc/self/maps").unwrap(), here()).is_empty());
    }
}
