//! Points in time as text, in the zone of the machine (environment variable `TZ`), or UTC.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

static IS_UTC: AtomicBool = AtomicBool::new(false);

/// From now on, times are those of UTC: for tests that compare texts.
pub fn use_utc() {
    IS_UTC.store(true, Ordering::Relaxed);
}

/// As ctime(3), without the newline: `Sat Nov 21 21:11:29 2026`.
pub fn ctime(seconds: u64) -> String {
    local(seconds, c"%a %b %e %H:%M:%S %Y")
}

/// By a format of strftime(3); empty for a time that has no date.
pub fn local(seconds: u64, format: &CStr) -> String {
    let Ok(time) = libc::time_t::try_from(seconds) else { return String::new() };
    let Some(tm) = parts(time) else { return String::new() };
    let mut text = [0u8; 128];
    // SAFETY: the buffer has the length given, the format is a C string, and `tm` was filled above.
    let len = unsafe { libc::strftime(text.as_mut_ptr().cast(), text.len(), format.as_ptr(), &tm) };
    String::from_utf8_lossy(&text[..len]).into_owned()
}

/// The seconds since 1970 of a date, `2026-11-21 21:11` or `2026-11-21`; `None` if it is none.
pub fn of_date(text: &str) -> Option<u64> {
    let (date, clock) = text.split_once(' ').unwrap_or((text, "0:0"));
    let (dates, clocks) = (numbers(date, '-')?, numbers(clock, ':')?);
    let (&[year, month, day], &[hour, minute]) = (dates.as_slice(), clocks.as_slice()) else { return None };
    let days_of = |year: i64, month: i64| days_before(year + month / 12, month % 12 + 1) - days_before(year, month);
    let is_month = (1970..10_000).contains(&year) && (1..=12).contains(&month);
    if !is_month || !(1..=days_of(year, month)).contains(&day) || !(0..24).contains(&hour) || !(0..60).contains(&minute)
    {
        return None;
    }
    let in_utc =
        |year, month, day: i64, hour, minute| ((days_before(year, month) + day - 1) * 24 + hour) * 3600 + minute * 60;
    let wanted = in_utc(year, month, day, hour, minute);
    // how far the zone is from UTC then; twice, as that may differ at the first guess
    let mut seconds = wanted;
    for _ in 0..2 {
        let shown = local(u64::try_from(seconds).ok()?, c"%Y %m %d %H %M");
        let [year, month, day, hour, minute] = *numbers(&shown, ' ')?.as_slice() else { return None };
        seconds += wanted - in_utc(year, month, day, hour, minute);
    }
    u64::try_from(seconds).ok()
}

fn numbers(text: &str, between: char) -> Option<Vec<i64>> {
    text.split(between).map(|part| part.parse().ok()).collect()
}

/// Days between 1970 and the first of a month, of the Gregorian calendar.
fn days_before(year: i64, month: i64) -> i64 {
    // years begin in March, so that the leap day is their last
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (month * 153 + 2) / 5 - 719_468
}

fn parts(time: libc::time_t) -> Option<libc::tm> {
    let convert = if IS_UTC.load(Ordering::Relaxed) { libc::gmtime_r } else { libc::localtime_r };
    // SAFETY: all-zero bytes are a valid tm (its pointer may be null).
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both point to live values; neither function keeps a reference to them.
    let converted = unsafe { convert(&time, &mut tm) };
    (!converted.is_null()).then_some(tm)
}

/// The seconds between two reports, from a command line.
pub fn interval(text: &str) -> Result<f64, String> {
    let parsed = text.parse().ok().filter(|seconds| (0.01..=86_400.0).contains(seconds));
    parsed.ok_or_else(|| "not a number of seconds".to_owned())
}

/// Seconds since 1970.
pub fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Days, hours, minutes and seconds as `zpool status` writes them: `00:01:02`, or `2 days 03:04:05`.
pub fn span(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    if days > 0 { format!("{days} days {clock}") } else { clock }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        use_utc();
        assert_eq!(ctime(1_000_000_000), "Sun Sep  9 01:46:40 2001");
        assert_eq!(local(u64::MAX, c"%Y"), "");
        assert_eq!(of_date("2001-09-09 01:46"), Some(1_000_000_000 - 40));
        assert_eq!((of_date("2001-09-09"), of_date("1970-01-01")), (Some(1_000_000_000 - 6400), Some(0)));
        for text in
            ["", "2001", "2001-9", "2001-02-30", "2001-13-01", "2001-09-09 24:00", "2001-09-09 1", "now", "1-1-1"]
        {
            assert_eq!(of_date(text), None, "{text}");
        }
        assert_eq!(
            (of_date("2001-09-09 01:60"), of_date("2001-09-09 1:2:3"), of_date("2001-09-0 1:2")),
            (None, None, None)
        );
        assert_eq!((span(62), span(2 * 86_400 + 3 * 3600 + 245)), ("00:01:02".into(), "2 days 03:04:05".into()));
    }
}
