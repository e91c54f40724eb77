//! Values in the notation of scenario files.

use std::time::Duration;

use levada_types::{ByteSize, format_duration, parse_duration};
use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A duration, written as in `"6s"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time(pub Duration);

/// An amount of bytes, written as in `"32MiB"` or as a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size(pub u64);

/// A part of one, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share(pub f64);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_duration(self.0))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_duration(&text).map(Self).map_err(de::Error::custom)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = ByteSize(self.0).to_string();
        // The text rounds a value that is not a whole number of units.
        if text.parse() == Ok(ByteSize(self.0)) {
            serializer.serialize_str(&text)
        } else {
            serializer.serialize_str(&self.0.to_string())
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Bytes(u64),
            Text(String),
        }
        match Written::deserialize(deserializer) {
            Ok(Written::Bytes(bytes)) => Ok(Self(bytes)),
            Ok(Written::Text(text)) => {
                text.parse().map(|ByteSize(bytes)| Self(bytes)).map_err(de::Error::custom)
            }
            Err(_) => Err(de::Error::custom("a size is a number of bytes or such as \"64MiB\"")),
        }
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(deserializer)?;
        if (0.0..=1.0).contains(&share) {
            Ok(Self(share))
        } else {
            Err(de::Error::custom("a share is a number from 0 to 1"))
        }
    }
}

/// The types in a schema: the formats are those of a node's configuration.
macro_rules! schemas {
    ($($type:ident = $schema:tt),* $(,)?) => {$(
        impl JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                json_schema!($schema)
            }
        }
    )*};
}

schemas! {
    Time = { "type": "string", "format": "levada-duration" },
    Size = { "type": ["string", "integer"], "format": "levada-size" },
    Share = { "type": "number", "minimum": 0, "maximum": 1 },
}
