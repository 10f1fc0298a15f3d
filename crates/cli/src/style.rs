//! Colours, quantities and times for people.
//!
//! **Promises.** No escape sequence is written unless the output is a terminal that wants them (`NO_COLOR`, `TERM`).

use std::io::IsTerminal;

use jiff::{SignedDuration, Timestamp};

/// Whether to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    colour: bool,
}

impl Style {
    /// For output to `stream`.
    pub fn of(stream: &impl IsTerminal) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self {
            colour: stream.is_terminal() && !refused,
        }
    }

    /// Never colours.
    #[cfg(test)]
    pub const PLAIN: Self = Self { colour: false };

    /// Something to look at.
    pub fn bad(self, text: &str) -> String {
        self.paint("1;31", text)
    }

    /// Something that waits.
    pub fn waits(self, text: &str) -> String {
        self.paint("1;33", text)
    }

    /// Something that is fine.
    pub fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// A heading, or a command to copy.
    pub fn strong(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// `2 min ago`, `in 30 s`.
pub fn ago(then: Timestamp, now: Timestamp) -> String {
    let passed = now.duration_since(then);
    if passed.is_negative() {
        format!("in {}", span(passed.abs()))
    } else {
        format!("{} ago", span(passed))
    }
}

/// The largest unit that fits: `90 s`, `5 min`, `3 h`, `12 d`.
fn span(time: SignedDuration) -> String {
    match time.as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// `1.4 GiB`.
pub fn bytes(number: i64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = i128::from(number.max(0)) * 10;
    if value < 10_240 {
        return format!("{} B", number.max(0));
    }
    let mut unit = 0;
    value /= 1_024;
    while value >= 10_240 && unit + 1 < UNITS.len() {
        value /= 1_024;
        unit += 1;
    }
    format!("{}.{} {}", value / 10, value % 10, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_well() {
        assert_eq!(bytes(-5), "0 B");
        assert_eq!(bytes(1_023), "1023 B");
        assert_eq!(bytes(1_536), "1.5 KiB");
        assert_eq!(bytes(i64::MAX), "7.9 EiB");
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(ago(at(0), at(90)), "90 s ago");
        assert_eq!(ago(at(0), at(7_199)), "119 min ago");
        assert_eq!(ago(at(0), at(7_200)), "2 h ago");
        assert_eq!(ago(at(60), at(30)), "in 30 s");
    }

    #[test]
    fn without_a_terminal_there_is_no_escape_sequence() {
        assert_eq!(Style::PLAIN.bad("held"), "held");
        assert_eq!(Style { colour: true }.bad("held"), "\x1b[1;31mheld\x1b[0m");
    }
}
