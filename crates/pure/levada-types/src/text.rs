//! Values that a configuration writes as text: durations, sizes, rates, addresses.
//!
//! Each is a type of its own that is always valid. A field that has the plain type instead says so by
//! `#[serde(with = "As::<Time>")]`: it is read, written and described as a `Time`, and is a `Duration`.

use std::{fmt, marker::PhantomData, net::SocketAddr, str::FromStr, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{ByteSize, format_duration, parse_duration, parse_rate};

/// A format of text, as the schema's `format` names it.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The value of `format`.
    pub name: &'static str,
    /// The expected text, for errors and documents.
    pub expected: &'static str,
    /// A valid value.
    pub example: &'static str,
    /// Whether `text` is valid, and its amount if it is an amount.
    pub measure: fn(text: &str) -> Option<Option<u128>>,
}

/// The text is not valid. The check of a file says more, because it knows the expected format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not of the expected form")
    }
}

impl std::error::Error for Malformed {}

/// Gives types that are read from text and written as text their [`Format`], their schema, and serde: the name of
/// the format, the expected text, an example, and the amount where it is one.
#[macro_export]
macro_rules! text_formats {
    ($($type:ident = $name:literal, $expected:expr, $example:literal $(, $amount:expr)?;)*) => {$(
        impl $type {
            /// Its format.
            pub const FORMAT: $crate::text::Format = $crate::text::Format {
                name: $name,
                expected: $expected,
                example: $example,
                measure: |text| {
                    let _value: $type = text.parse().ok()?;
                    Some(None $(.or({
                        let amount: fn($type) -> u128 = $amount;
                        Some(amount(_value))
                    }))?)
                },
            };
        }
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "format": $name })
            }
        }
    )*};
}

/// Makes types in a configuration of types that are read from text and written as text.
#[macro_export]
macro_rules! text_around {
    ($($(#[$doc:meta])* $type:ident($inner:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $type(pub $inner);
        impl std::str::FromStr for $type {
            type Err = $crate::text::Malformed;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self).map_err(|_| $crate::text::Malformed)
            }
        }
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
        impl $crate::text::Form for $type {
            type Value = $inner;
            fn of(value: &Self::Value) -> Self {
                Self(value.clone())
            }
            fn value(self) -> Self::Value {
                self.0
            }
        }
    )*};
}

/// A duration, such as `"300ms"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time(pub Duration);

/// An amount of bytes, such as `"64MiB"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size(pub u64);

/// Bytes per second, written in bytes (`"5MiB/s"`) or in bits (`"40Mbit/s"`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate(pub u64);

text_around! {
    /// An address of this machine and a port.
    #[derive(Copy)]
    Address(SocketAddr);
}

text_formats! {
    Time = "levada-duration", "a duration", "300ms", |time| time.0.as_nanos();
    Size = "levada-size", "a size", "64MiB", |size| size.0.into();
    Rate = "levada-rate", "bytes or bits per second", "5MiB/s", |rate| rate.0.into();
    Address = "levada-address", "an IP address and a port", "0.0.0.0:8080";
}

impl FromStr for Time {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        parse_duration(text).map(Self).map_err(|_| Malformed)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        format_duration(self.0).fmt(f)
    }
}

impl FromStr for Size {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        text.parse().map(|ByteSize(bytes)| Self(bytes)).map_err(|_| Malformed)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ByteSize(self.0).fmt(f)
    }
}

impl FromStr for Rate {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        parse_rate(text).map(Self).map_err(|_| Malformed)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", ByteSize(self.0))
    }
}

/// A form in a file of a value that programs have in another type.
pub trait Form: Sized {
    /// The type in programs.
    type Value;
    /// The form of a value.
    fn of(value: &Self::Value) -> Self;
    /// The value.
    fn value(self) -> Self::Value;
}

/// Implements [`Form`] for types that are converted back and forth.
macro_rules! forms {
    ($($form:ty = $value:ty, $of:expr, $to:expr;)*) => {$(
        impl Form for $form {
            type Value = $value;
            fn of(value: &$value) -> Self {
                let of: fn(&$value) -> Self = $of;
                of(value)
            }
            fn value(self) -> $value {
                let to: fn(Self) -> $value = $to;
                to(self)
            }
        }
    )*};
}

forms! {
    Time = Duration, |time| Self(*time), |form| form.0;
    Size = u64, |bytes| Self(*bytes), |form| form.0;
    Rate = u64, |bytes| Self(*bytes), |form| form.0;
    // A count has 32 bits in a file, whatever the machine has.
    u32 = usize, |count| Self::try_from(*count).unwrap_or(Self::MAX), |form| form as usize;
}

impl<T: Form> Form for Option<T> {
    type Value = Option<T::Value>;
    fn of(value: &Self::Value) -> Self {
        value.as_ref().map(T::of)
    }
    fn value(self) -> Self::Value {
        self.map(T::value)
    }
}

impl<T: Form> Form for Vec<T> {
    type Value = Vec<T::Value>;
    fn of(value: &Self::Value) -> Self {
        value.iter().map(T::of).collect()
    }
    fn value(self) -> Self::Value {
        self.into_iter().map(T::value).collect()
    }
}

/// The way by which a field is read, written and described in the form `T`.
pub struct As<T>(PhantomData<T>);

impl<T: Form> As<T> {
    /// Writes a value in its form.
    ///
    /// # Errors
    /// The errors of the serializer.
    pub fn serialize<S: Serializer>(value: &T::Value, to: S) -> Result<S::Ok, S::Error>
    where
        T: Serialize,
    {
        T::of(value).serialize(to)
    }

    /// Reads a value by its form.
    ///
    /// # Errors
    /// When it has another form.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<T::Value, D::Error>
    where
        T: Deserialize<'de>,
    {
        <T as Deserialize>::deserialize(from).map(T::value)
    }
}

impl<T: JsonSchema> JsonSchema for As<T> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}
