//! JSON with the line of every value, so that what is left has a place.

use std::{fmt, sync::Arc};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{conversion::Unreadable, files::InputFile, ledger::Place};

/// A value.
#[derive(Clone, Debug)]
pub(super) struct Json {
    pub(super) place: Place,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// A text, a number or a switch, as it is written. `null` is empty: Traffic Ops writes it for fields without value.
    Scalar(String),
    List(Vec<Json>),
    Table(Vec<(String, Json)>),
}

impl Json {
    /// # Errors
    /// If the file is no JSON.
    pub(super) fn read(file: &InputFile) -> Result<Self, Unreadable> {
        let reader = Reader {
            file: file.name.as_str().into(),
            text: &file.text,
            lines: file.text.match_indices('\n').map(|(at, _)| at).collect(),
        };
        let whole: &RawValue = serde_json::from_str(&file.text).map_err(|error| {
            Unreadable::at(&reader.file, error.line().max(1), &format!("is no JSON: {error}"))
        })?;
        reader.value(whole)
    }

    /// The members of a table, none of anything else.
    pub(super) fn members(&self) -> &[(String, Self)] {
        if let Kind::Table(members) = &self.kind { members } else { &[] }
    }

    /// The items of a list, none of anything else.
    pub(super) fn items(&self) -> &[Self] {
        if let Kind::List(items) = &self.kind { items } else { &[] }
    }

    /// A member. Of two with one name, the last counts, as with the parsers of Traffic Control.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.members().iter().rev().find_map(|(own, value)| (own == key).then_some(value))
    }

    /// A text, a number or a switch; empty if it is none.
    pub(super) fn text(&self) -> &str {
        if let Kind::Scalar(text) = &self.kind { text } else { "" }
    }

    /// The text of a member; empty if there is none.
    pub(super) fn member(&self, key: &str) -> &str {
        self.get(key).map_or("", Self::text)
    }

    /// The number of a member.
    pub(super) fn number(&self, key: &str) -> Option<f64> {
        self.member(key).parse().ok().filter(|number: &f64| number.is_finite())
    }

    /// The texts of a list of a member.
    pub(super) fn texts(&self, key: &str) -> Vec<&str> {
        self.get(key).map_or(&[][..], Self::items).iter().map(Self::text).collect()
    }

    /// Whether there is nothing in it.
    pub(super) fn is_empty(&self) -> bool {
        match &self.kind {
            Kind::Scalar(text) => text.is_empty(),
            Kind::List(items) => items.is_empty(),
            Kind::Table(members) => members.is_empty(),
        }
    }

    /// On one line, for reports.
    pub(super) fn shown(&self) -> String {
        match &self.kind {
            Kind::Scalar(text) => text.clone(),
            Kind::List(items) => items.iter().map(Self::shown).collect::<Vec<_>>().join(" "),
            Kind::Table(members) => {
                let pair = |(key, value): &(String, Self)| format!("{key}: {}", value.shown());
                members.iter().map(pair).collect::<Vec<_>>().join(", ")
            }
        }
    }
}

struct Reader<'a> {
    file: Arc<str>,
    text: &'a str,
    /// The ends of lines.
    lines: Vec<usize>,
}

impl<'a> Reader<'a> {
    fn value(&self, raw: &'a RawValue) -> Result<Json, Unreadable> {
        let text = raw.get();
        // The text of a raw value is a part of the text of the file.
        let offset = text.as_ptr().addr() - self.text.as_ptr().addr();
        let line = self.lines.partition_point(|end| *end < offset) + 1;
        let place = Place { file: self.file.clone(), line };
        let wrong = |error: serde_json::Error| Unreadable::at(&self.file, line, &error.to_string());
        let kind = match text.as_bytes().first() {
            Some(b'{') => {
                let Members(members) = serde_json::from_str(text).map_err(wrong)?;
                let members = members.into_iter().map(|(key, raw)| Ok((key, self.value(raw)?)));
                Kind::Table(members.collect::<Result<_, _>>()?)
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(text).map_err(wrong)?;
                Kind::List(items.into_iter().map(|raw| self.value(raw)).collect::<Result<_, _>>()?)
            }
            Some(b'"') => Kind::Scalar(serde_json::from_str(text).map_err(wrong)?),
            _ if text == "null" => Kind::Scalar(String::new()),
            _ => Kind::Scalar(text.to_owned()),
        };
        Ok(Json { place, kind })
    }
}

/// The members of a table in the order of the file.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Table;

        impl<'de> Visitor<'de> for Table {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Table)
    }
}
