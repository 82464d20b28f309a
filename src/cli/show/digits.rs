//! The decimal digits of a binary floating point number: the fewest that tell it from its neighbours, or a given
//! number of them, correctly rounded (Burger and Dybvig, "Printing Floating-Point Numbers Quickly and Accurately").

use std::cmp::Ordering;

/// A natural number: 32-bit digits, the least significant first, none of the last ones 0.
#[derive(Clone)]
pub(super) struct Natural(Vec<u32>);

impl Natural {
    pub(super) fn new(value: u64) -> Natural {
        let mut number = Natural(vec![value as u32, (value >> 32) as u32]);
        number.trim();
        number
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    pub(super) fn multiply(&mut self, factor: u32) {
        let mut carry = 0u64;
        for digit in &mut self.0 {
            carry += u64::from(*digit) * u64::from(factor);
            *digit = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    pub(super) fn shift(mut self, bits: u32) -> Natural {
        self.multiply(1 << (bits % 32));
        if !self.0.is_empty() {
            self.0.splice(0..0, std::iter::repeat_n(0, (bits / 32) as usize));
        }
        self
    }

    fn times(&self, factor: u64) -> Natural {
        let (mut low, mut high) = (self.clone(), self.clone());
        low.multiply(factor as u32);
        high.multiply((factor >> 32) as u32);
        low.trim();
        high.trim();
        low.plus(&high.shift(32))
    }

    fn power_of_five(mut power: u32) -> Natural {
        let mut number = Natural::new(1);
        while power > 0 {
            let step = power.min(13);
            number.multiply(5u32.pow(step));
            power -= step;
        }
        number
    }

    pub(super) fn plus(&self, other: &Natural) -> Natural {
        let mut sum = Vec::with_capacity(self.0.len().max(other.0.len()) + 1);
        let mut carry = 0u64;
        for at in 0..self.0.len().max(other.0.len()) {
            let digit = |number: &Natural| u64::from(number.0.get(at).copied().unwrap_or(0));
            carry += digit(self) + digit(other);
            sum.push(carry as u32);
            carry >>= 32;
        }
        if carry > 0 {
            sum.push(carry as u32);
        }
        Natural(sum)
    }

    /// Subtracts a number that is not larger.
    fn subtract(&mut self, other: &Natural) {
        let mut borrow = 0i64;
        for (at, digit) in self.0.iter_mut().enumerate() {
            borrow += i64::from(*digit) - i64::from(other.0.get(at).copied().unwrap_or(0));
            *digit = borrow as u32;
            borrow >>= 32;
        }
        self.trim();
    }
}

impl PartialEq for Natural {
    fn eq(&self, other: &Natural) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Natural {}

impl PartialOrd for Natural {
    fn partial_cmp(&self, other: &Natural) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Natural {
    fn cmp(&self, other: &Natural) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

/// A number `mantissa * 2^exponent`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Binary {
    pub(super) mantissa: u64,
    pub(super) exponent: i32,
    /// The next number below is half as far away as the next above: the mantissa is the least of its binade.
    pub(super) near_below: bool,
}

/// How many digits are wanted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Limit {
    /// As few as tell the number from its neighbours.
    Shortest,
    /// So, but at most this many after the decimal point.
    Fraction(i32),
    /// So, but at least and at most this many in all.
    Total(i32, i32),
}

/// Decimal digits, each 0 to 9, the first of them worth `10^exponent`.
pub(super) struct Digits {
    pub(super) digits: Vec<u8>,
    pub(super) exponent: i32,
}

pub(super) fn of(number: Binary, limit: Limit) -> Digits {
    let Binary { mantissa, exponent, near_below } = number;
    if mantissa == 0 {
        return Digits { digits: vec![0], exponent: 0 };
    }
    let even = mantissa % 2 == 0;
    // The power of ten just above the number, or one less.
    let log2 = 63 - mantissa.leading_zeros() as i32 + exponent;
    let mut power = (f64::from(log2) * std::f64::consts::LOG10_2 - 0.69).ceil() as i32;

    // The number over 10^power is value / scale; half the way to its neighbours is below / scale and above / scale.
    // Powers of two that all four have in common are left out.
    let (mut up, mut down) = (exponent.max(0) as u32, exponent.min(0).unsigned_abs() + 2);
    let tens = power.unsigned_abs();
    let (factor, divisor) = if power < 0 {
        up += tens;
        (Natural::power_of_five(tens), Natural::new(1))
    } else {
        down += tens;
        (Natural::new(1), Natural::power_of_five(tens))
    };
    (up, down) = (up.saturating_sub(down), down.saturating_sub(up));
    let mut value = factor.times(mantissa).shift(up + 2);
    let scale = divisor.shift(down);
    let mut below = factor.clone().shift(if near_below { up } else { up + 1 });
    let mut above = factor.shift(up + 1);
    if value >= scale {
        power += 1;
    } else {
        for number in [&mut value, &mut below, &mut above] {
            number.multiply(10);
        }
    }

    let (most, least) = match limit {
        Limit::Shortest => (i32::MIN, power),
        Limit::Fraction(most) => (-most, power),
        Limit::Total(least, most) => (power - most, power - least),
    };
    let mut out = Digits { digits: Vec::new(), exponent: power - 1 };
    let (digit, low, high) = loop {
        power -= 1;
        let mut digit = 0u8;
        while value >= scale && digit < 9 {
            value.subtract(&scale);
            digit += 1;
        }
        // Whether the digits so far, and those with the last one raised, name this number and no other.
        let (low, high) = (value.cmp(&below), value.plus(&above).cmp(&scale));
        let low = low == Ordering::Less || even && low == Ordering::Equal;
        let high = high == Ordering::Greater || even && high == Ordering::Equal;
        if (low || high) && power <= least || power <= most {
            break (digit, low, high);
        }
        out.digits.push(digit);
        for number in [&mut value, &mut below, &mut above] {
            number.multiply(10);
        }
    };
    let down = if low == high {
        value.multiply(2);
        match value.cmp(&scale) {
            Ordering::Less => true,
            Ordering::Equal => digit % 2 == 0,
            Ordering::Greater => false,
        }
    } else {
        low
    };
    out.digits.push(digit);
    if !down {
        out.round_up();
    }
    out
}

impl Digits {
    fn round_up(&mut self) {
        while self.digits.last() == Some(&9) {
            self.digits.pop();
        }
        match self.digits.last_mut() {
            Some(digit) => *digit += 1,
            None => {
                self.digits.push(1);
                self.exponent += 1;
            }
        }
    }
}
