//! Topologies as GraphML, which graph tools write (graphml.graphdrawing.org).
//!
//! Nodes are places, named by their `id`; edges are links. `role`, `latency`, `mbps` and `queue` are
//! data of nodes and edges, found by the `attr.name` of their keys, which may have defaults:
//!
//! ```xml
//! <graphml>
//!   <key id="r" for="node" attr.name="role"><default>router</default></key>
//!   <key id="l" for="edge" attr.name="latency"/>
//!   <key id="m" for="edge" attr.name="mbps"><default>100</default></key>
//!   <graph edgedefault="undirected">
//!     <node id="hub"><data key="r">redirector</data></node>
//!     <node id="s0"><data key="r">server</data></node>
//!     <edge source="s0" target="hub"><data key="l">2ms</data></edge>
//!   </graph>
//! </graphml>
//! ```
//!
//! Data under other names and unknown elements are ignored. Entities beyond XML's own five are
//! refused, so that a small file cannot expand.

use std::{borrow::Cow, collections::BTreeMap};

use quick_xml::{
    Reader, XmlVersion,
    events::{BytesStart, Event},
};

use super::{
    super::{Routes, Topology},
    FileError, Problem, RawLink, RawPlace, assemble, too_large,
};

/// Reads a topology from GraphML.
///
/// # Errors
/// All problems, each with its place in the file.
pub fn from_graphml(text: &str) -> Result<(Topology, Routes), Vec<FileError>> {
    if let Some(error) = too_large(text.len()) {
        return Err(error);
    }
    let mut reader = Reader::from_str(text);
    let mut document = Document::default();
    loop {
        let event = reader.read_event().map_err(|error| error.to_string());
        let result = match event {
            Ok(Event::Eof) => break,
            Ok(event) => document.take(event),
            Err(error) => Err(error),
        };
        if let Err(problem) = result {
            let line = line_at(text, reader.buffer_position());
            return Err(vec![FileError {
                at: format!("line {line}"),
                problem: Problem::Format(problem),
            }]);
        }
    }
    document.finish()
}

/// The state of the reader.
#[derive(Default)]
struct Document {
    keys: BTreeMap<String, Key>,
    places: Vec<RawPlace>,
    links: Vec<RawLink>,
    /// The open elements that matter, innermost last.
    open: Vec<Open>,
    /// The text since the last start of an element.
    text: String,
    graphs: usize,
}

/// A declared kind of data: its name, and its default.
struct Key {
    name: String,
    default: Option<String>,
}

/// An element whose content matters.
enum Open {
    Key(String),
    Default,
    Node,
    Edge,
    Data(String),
    /// Any other element.
    Else,
}

impl Document {
    fn take(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            Event::Start(element) => self.start(&element),
            Event::Empty(element) => {
                self.start(&element)?;
                self.end()
            }
            Event::End(_) => self.end(),
            Event::Text(text) => {
                self.text.push_str(&text.xml10_content());
                Ok(())
            }
            Event::CData(text) => {
                self.text.push_str(&text.xml10_content());
                Ok(())
            }
            Event::GeneralRef(entity) => {
                let name = entity.xml10_content();
                let known = quick_xml::escape::resolve_xml_entity(&name).map(str::to_owned);
                let numbered = entity.resolve_char_ref().ok().flatten().map(String::from);
                let value = known.or(numbered).ok_or_else(|| {
                    format!("the entity `&{name};` is not known: write what it stands for")
                })?;
                self.text.push_str(&value);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn start(&mut self, element: &BytesStart<'_>) -> Result<(), String> {
        self.text.clear();
        let open = match (element.local_name().as_ref(), self.open.last()) {
            ("key", _) => {
                let id = needed(element, "id")?;
                let name = attribute(element, "attr.name")?.unwrap_or_default();
                self.keys.insert(id.clone(), Key { name, default: None });
                Open::Key(id)
            }
            ("default", Some(Open::Key(_))) => Open::Default,
            ("graph", _) => {
                self.graphs += 1;
                if self.graphs > 1 {
                    return Err("more than one graph: leave one".to_owned());
                }
                if attribute(element, "edgedefault")?.as_deref() == Some("directed") {
                    return Err("the graph is directed, and links carry both directions: \
                                set edgedefault=\"undirected\""
                        .to_owned());
                }
                Open::Else
            }
            ("node", _) => {
                let name = needed(element, "id")?;
                self.places.push(RawPlace { at: format!("node `{name}`"), name, role: None });
                Open::Node
            }
            ("edge", _) => {
                let (a, b) = (needed(element, "source")?, needed(element, "target")?);
                let at = format!("edge {} (`{a}` to `{b}`)", self.links.len());
                self.links.push(RawLink { at, a, b, latency: None, mbps: None, queue: None });
                Open::Edge
            }
            ("hyperedge", _) => {
                return Err("a link has two ends: write edges in place of a hyperedge".to_owned());
            }
            ("data", Some(Open::Node | Open::Edge)) => Open::Data(needed(element, "key")?),
            _ => Open::Else,
        };
        self.open.push(open);
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        let text = self.text.trim().to_owned();
        self.text.clear();
        match self.open.pop() {
            Some(Open::Default) => {
                if let Some(Open::Key(id)) = self.open.last() {
                    self.keys.entry(id.clone()).and_modify(|key| key.default = Some(text));
                }
            }
            Some(Open::Data(id)) => {
                let Some(key) = self.keys.get(&id) else {
                    return Err(format!("there is no key `{id}`: declare it before the graph"));
                };
                let node = matches!(self.open.last(), Some(Open::Node));
                let name = key.name.as_str();
                let slot = match (node, self.places.last_mut(), self.links.last_mut()) {
                    (true, Some(place), _) if name == "role" => Some(&mut place.role),
                    (false, _, Some(link)) => link.figure(name),
                    _ => None,
                };
                if let Some(slot) = slot {
                    *slot = Some(text);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(Topology, Routes), Vec<FileError>> {
        for key in self.keys.values() {
            let Some(default) = &key.default else { continue };
            if key.name == "role" {
                let unset = self.places.iter_mut().filter(|place| place.role.is_none());
                unset.for_each(|place| place.role = Some(default.clone()));
            }
            for slot in self.links.iter_mut().filter_map(|link| link.figure(&key.name)) {
                slot.get_or_insert_with(|| default.clone());
            }
        }
        assemble(&self.places, &self.links)
    }
}

impl RawLink {
    /// The field of a link for data of this name.
    fn figure(&mut self, name: &str) -> Option<&mut Option<String>> {
        match name {
            "latency" => Some(&mut self.latency),
            "mbps" => Some(&mut self.mbps),
            "queue" => Some(&mut self.queue),
            _ => None,
        }
    }
}

fn needed(element: &BytesStart<'_>, name: &str) -> Result<String, String> {
    let tag = element.local_name();
    let missing = || format!("<{}> needs the attribute `{name}`", tag.as_ref());
    attribute(element, name)?.ok_or_else(missing)
}

fn attribute(element: &BytesStart<'_>, name: &str) -> Result<Option<String>, String> {
    let found = element.try_get_attribute(name).map_err(|error| error.to_string())?;
    let value = found.map(|attribute| attribute.normalized_value(XmlVersion::Implicit1_0));
    let value = value.transpose().map_err(|error| error.to_string())?;
    Ok(value.map(Cow::into_owned))
}

fn line_at(text: &str, position: u64) -> usize {
    let read = &text.as_bytes()[..usize::try_from(position).unwrap_or(0).min(text.len())];
    read.iter().filter(|byte| **byte == b'\n').count() + 1
}
