//! Amounts as a ResourceQuota writes them: read, compared, clamped, printed.
//!
//! **Promises.** What the API server accepts as a quantity is read to the same value; nothing overflows, sums and
//! values saturate. What it would refuse as the value of a dimension such as `…/size` is refused here in the same
//! cases (`docs/design.md` 4.1: whole numbers, not negative, not above about 8 Pi).
//!
//! **Assumes.** Amounts are bytes or things: fractions are rounded away from zero, as the API server does.

/// The largest value that is published: 8 Pi. The API server tells whole numbers by a thousandth part that has to fit
/// 64 bits, so it refuses 9 Pi.
pub const LARGEST: i64 = 8 << 50;

/// Why a text is no amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// It is not a quantity at all.
    #[error("{0:?} is not a quantity: write digits with a suffix such as Gi, M or k")]
    NotAQuantity(String),
    /// It is below zero.
    #[error("{0:?} is negative: a limit is zero or more")]
    Negative(String),
    /// It is not a whole number.
    #[error("{0:?} is not a whole number of bytes or things: choose a value without a fraction")]
    Fraction(String),
    /// It is above what a quota can hold.
    #[error("{0:?} is more than a quota can hold: 8Pi is the most that is certain to be accepted")]
    TooLarge(String),
}

/// A quantity to the billionth part, saturating.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Nanos(i128);

const NANO: i128 = 1_000_000_000;

impl Nanos {
    /// Whole units, away from zero, saturating.
    fn units(self) -> i64 {
        let whole = self.0 / NANO;
        let rest = self.0 % NANO;
        let units = whole + rest.signum();
        i64::try_from(units).unwrap_or(if units < 0 { i64::MIN } else { i64::MAX })
    }
}

fn parse(text: &str) -> Result<Nanos, AmountError> {
    let no = || AmountError::NotAQuantity(text.to_owned());
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return Err(no());
    }
    let (shift, exponent) = scale(suffix).ok_or_else(no)?;
    let mut mantissa: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        mantissa = mantissa
            .saturating_mul(10)
            .saturating_add(i128::from(digit - b'0'));
    }
    let mut value = mantissa.saturating_mul(1_i128 << shift);
    let places = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    let mut exponent = exponent.saturating_add(9).saturating_sub(places);
    while exponent > 0 && value != 0 && value != i128::MAX {
        value = value.saturating_mul(10);
        exponent -= 1;
    }
    while exponent < 0 && value != 0 {
        // Away from zero: the smallest thing there is counts as something.
        value = value / 10 + i128::from(value % 10 != 0);
        exponent += 1;
        if value == 1 {
            break;
        }
    }
    Ok(Nanos(if negative { -value } else { value }))
}

/// Binary shift and power of ten of a suffix.
fn scale(suffix: &str) -> Option<(u32, i64)> {
    Some(match suffix {
        "" => (0, 0),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            if !exponent
                .strip_prefix(['+', '-'])
                .unwrap_or(exponent)
                .bytes()
                .all(|b| b.is_ascii_digit())
            {
                return None;
            }
            (0, exponent.parse().ok()?)
        }
    })
}

/// Whole units of a quantity (bytes, or things): fractions away from zero, saturating at the ends of `i64`.
///
/// # Errors
/// [`AmountError::NotAQuantity`].
pub fn units(text: &str) -> Result<i64, AmountError> {
    parse(text).map(Nanos::units)
}

/// A limit from `spec.hard`: what the API server accepts there for our dimensions, and nothing else.
///
/// # Errors
/// Each case in which the API server refuses the quota.
pub fn limit(text: &str) -> Result<i64, AmountError> {
    let value = parse(text)?;
    if value.0 < 0 {
        return Err(AmountError::Negative(text.to_owned()));
    }
    // The API server takes the value in thousandths into 64 bits before it looks for a fraction.
    if value.0 / (NANO / 1000) > i128::from(i64::MAX) {
        return Err(AmountError::TooLarge(text.to_owned()));
    }
    if value.0 % NANO != 0 {
        return Err(AmountError::Fraction(text.to_owned()));
    }
    Ok(value.units())
}

/// Whether two quantities are the same amount, however they are written. What is no quantity equals nothing.
#[must_use]
pub fn same(one: &str, other: &str) -> bool {
    matches!((parse(one), parse(other)), (Ok(one), Ok(other)) if one == other)
}

/// What can be published of an amount: between zero and [`LARGEST`].
#[must_use]
pub fn clamp(amount: i64) -> i64 {
    amount.clamp(0, LARGEST)
}

/// Bytes as people and the API server write them: `48Mi`, `1025`.
#[must_use]
pub fn bytes(amount: i64) -> String {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let mut value = amount;
    let mut suffix = 0;
    while value != 0 && value % 1024 == 0 && suffix + 1 < SUFFIXES.len() {
        value /= 1024;
        suffix += 1;
    }
    format!("{value}{}", SUFFIXES[suffix])
}

/// Things as people write them: plain digits.
#[must_use]
pub fn things(amount: i64) -> String {
    amount.to_string()
}
