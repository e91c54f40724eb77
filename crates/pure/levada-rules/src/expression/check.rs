//! Makes a checked expression of a text: resolves names, checks types, and bounds the cost.
//!
//! The cost is that of [`evaluate`](super::evaluate), for the sizes below. So an expression that passes can
//! only run out of its budget on requests that are larger than that.

use std::collections::BTreeMap;

use cel::{
    IdedExpr,
    common::ast::{
        CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, MapExpr, SelectExpr, operators,
    },
    parser::PrattParser,
};
use http::HeaderName;
use levada_types::AddressPrefix;

use crate::{NamedTexts, PatternError, pattern};

use super::{
    BUDGET, LONGEST, Purpose,
    attributes::{Attribute, Fact, Table, changes_on_the_way},
    evaluate::{REGEX_BYTE, SPLIT_BYTE},
    node::{Calculation, Comparison, Node, Quantifier, Range, TextTest},
};

/// The bytes of a text that a client sends, for the cost.
const TEXT: u64 = 4096;
/// The names of a map that a client sends, and the parts of a split text, for the cost.
const NAMES: u64 = 64;
/// The bytes of such a name or part.
const NAME: u64 = 64;
/// The most characters that can nest something.
const MOST_OPERATORS: usize = 500;
/// The deepest nesting.
const DEEPEST: usize = 64;

/// Why a text is no expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// It is longer than 4096 bytes.
    #[error("is longer than {LONGEST} bytes")]
    TooLong,
    /// It has too many operators, or is nested too deeply.
    #[error("is nested too deeply, or has more than {MOST_OPERATORS} operators")]
    TooDeep,
    /// It cannot be read.
    #[error("cannot be read at character {column}: {message}")]
    Syntax {
        /// The place, from 1.
        column: usize,
        /// The problem.
        message: String,
    },
    /// There is no such name.
    #[error("there is no `{0}`")]
    UnknownName(String),
    /// There is no such function.
    #[error("there is no function `{0}`")]
    UnknownFunction(String),
    /// A part of CEL that does not exist here.
    #[error("{0} cannot be used here")]
    Unsupported(&'static str),
    /// A value has the wrong type.
    #[error("`{of}` needs {wanted}, not {found}")]
    Type {
        /// The function or operator.
        of: String,
        /// The types that it takes.
        wanted: &'static str,
        /// The type that it gets.
        found: &'static str,
    },
    /// The whole expression has the wrong type.
    #[error("gives {found}, and must give {wanted}")]
    Result {
        /// The type that is needed.
        wanted: &'static str,
        /// The type of the expression.
        found: &'static str,
    },
    /// A function has too few or too many arguments.
    #[error("`{0}` has too few or too many arguments")]
    Arguments(String),
    /// An argument has to be a written text.
    #[error(
        "the argument of `{0}` must be a text that stands there, so that it is known in advance"
    )]
    NotWritten(&'static str),
    /// A regular expression is wrong.
    #[error("the pattern of `matches` {0}")]
    Regex(PatternError),
    /// A prefix of addresses is wrong.
    #[error("`{0}` is no prefix of addresses")]
    Prefix(String),
    /// A text is no name of a header field.
    #[error("`{0}` is no name of a header field")]
    HeaderName(String),
    /// A field differs from node to node.
    #[error("the field `{0}` changes on the way between nodes")]
    ChangesOnTheWay(String),
    /// The country is asked for, and there is no database.
    #[error("names `source.country`, and there is no `country_database`")]
    NoCountries,
    /// One evaluation may cost too much.
    #[error("may cost {0}, which is more than {BUDGET}")]
    Cost(u64),
}

/// The name before those of the operator's variables.
const MAPPINGS: &str = "vars";

type Result<T> = std::result::Result<T, ExpressionError>;

/// The checked form of an expression for this purpose.
pub(super) fn check(
    source: &str,
    purpose: Purpose,
    has_countries: bool,
    mappings: &dyn NamedTexts,
) -> Result<Node> {
    if source.len() > LONGEST {
        return Err(ExpressionError::TooLong);
    }
    // The parser counts its recursion in some of its rules only.
    let nests = |byte: &u8| b"+-*/%?!.[({<>=".contains(byte);
    if source.bytes().filter(nests).count() > MOST_OPERATORS {
        return Err(ExpressionError::TooDeep);
    }
    let parser = PrattParser::new().max_recursion_depth(DEEPEST as u16);
    let read = parser.parse(source).map_err(|errors| syntax(source, &errors))?;
    let typed =
        Checker { variables: Vec::new(), depth: 0, has_countries, mappings }.value(&read)?;
    let found = typed.kind.as_str();
    let wanted = match (purpose, typed.kind) {
        (Purpose::Key | Purpose::Value, Kind::List(_)) => "a text, a whole number, true or false",
        (Purpose::Key | Purpose::Value, _) | (_, Kind::Bool) => "",
        _ => "true or false",
    };
    match typed.cost {
        _ if !wanted.is_empty() => Err(ExpressionError::Result { wanted, found }),
        cost if cost > BUDGET => Err(ExpressionError::Cost(cost)),
        _ => Ok(typed.node),
    }
}

fn syntax(source: &str, errors: &cel::ParseErrors) -> ExpressionError {
    let Some(first) = errors.errors.first() else {
        return ExpressionError::Syntax { column: 1, message: "unknown".to_owned() };
    };
    let (line, column) = first.pos;
    if line <= 0 && first.msg.contains("recursion") {
        return ExpressionError::TooDeep;
    }
    let lines = source.split_inclusive('\n').take((line - 1).max(0) as usize);
    let before: usize = lines.map(|line| line.chars().count()).sum();
    let message = first.msg.trim_start_matches("Syntax error: ");
    let message = message.replace("'<EOF>'", "the end").replace("<EOF>", "the end");
    let column = before + column.max(1) as usize;
    ExpressionError::Syntax { column, message: message.chars().take(200).collect() }
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    Int,
    Text,
    List(Element),
}

/// The type of the elements of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    Bool,
    Int,
    Text,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Bool => "true or false",
            Self::Int => "a whole number",
            Self::Text => "a text",
            Self::List(_) => "a list",
        }
    }

    fn element(self) -> Option<Element> {
        match self {
            Self::Bool => Some(Element::Bool),
            Self::Int => Some(Element::Int),
            Self::Text => Some(Element::Text),
            Self::List(_) => None,
        }
    }
}

impl From<Element> for Kind {
    fn from(element: Element) -> Self {
        match element {
            Element::Bool => Self::Bool,
            Element::Int => Self::Int,
            Element::Text => Self::Text,
        }
    }
}

/// A checked part of an expression.
struct Typed {
    node: Node,
    kind: Kind,
    /// The most bytes of it, or of each of its elements.
    length: u64,
    cost: u64,
}

/// A part that is a value, or has a meaning only within a larger part.
enum Operand {
    Value(Typed),
    Table(Table),
    Map(WrittenMap),
}

struct WrittenMap {
    values: BTreeMap<String, Node>,
    kind: Kind,
    length: u64,
}

struct Checker<'m> {
    /// The variables of macros, the innermost last.
    variables: Vec<(String, Kind, u64)>,
    depth: usize,
    has_countries: bool,
    /// The variables of the operator.
    mappings: &'m dyn NamedTexts,
}

impl Checker<'_> {
    fn value(&mut self, of: &IdedExpr) -> Result<Typed> {
        match self.operand(of)? {
            Operand::Value(typed) => Ok(typed),
            Operand::Table(_) | Operand::Map(_) => {
                Err(ExpressionError::Unsupported("a map as a whole"))
            }
        }
    }

    fn operand(&mut self, of: &IdedExpr) -> Result<Operand> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(ExpressionError::TooDeep);
        }
        let operand = match &of.expr {
            Expr::Literal(literal) => self::literal(literal).map(Operand::Value),
            Expr::Ident(name) => self.variable(name).map(Operand::Value),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call).map(Operand::Value),
            Expr::Comprehension(each) => self.each(each).map(Operand::Value),
            Expr::List(list) => self.list(&list.elements).map(Operand::Value),
            Expr::Map(map) => self::map(map).map(Operand::Map),
            Expr::Struct(_) => Err(ExpressionError::Unsupported("a message")),
            Expr::Unspecified => Err(ExpressionError::Unsupported("an empty part")),
        };
        self.depth -= 1;
        operand
    }

    fn variable(&self, name: &str) -> Result<Typed> {
        let mut known = self.variables.iter().rev().enumerate();
        let found = known.find(|(_, (own, ..))| own == name);
        let unknown = || ExpressionError::UnknownName(name.to_owned());
        let (outwards, (_, kind, length)) = found.ok_or_else(unknown)?;
        Ok(Typed { node: Node::Variable(outwards), kind: *kind, length: *length, cost: 1 })
    }

    /// `request.path`, `request.headers.x`, and `has(request.headers.x)`.
    fn select(&mut self, select: &SelectExpr) -> Result<Operand> {
        if matches!(&select.operand.expr, Expr::Ident(root) if root == MAPPINGS && !self.is_variable(root))
            && !select.test
            && let Some(mapping) = self.mappings.named(&select.field)
        {
            // Each of its texts is as long as a field may be.
            let cost = 2 * TEXT * mapping.weight() as u64;
            let node = Node::Mapped(mapping);
            return Ok(Operand::Value(Typed { node, kind: Kind::Text, length: TEXT, cost }));
        }
        if let Some(name) = self.qualified_name(select)
            && !select.test
            && let Some(attribute) = Attribute::named(&name)
        {
            return self.attribute(attribute);
        }
        let name = Typed {
            node: Node::Text(select.field.clone()),
            kind: Kind::Text,
            length: select.field.len() as u64,
            cost: 1,
        };
        let of = match &select.operand.expr {
            Expr::Ident(root) if !self.is_variable(root) => {
                let name = format!("{root}.{}", select.field);
                return match Attribute::named(&name) {
                    Some(_) => {
                        Err(ExpressionError::Unsupported("`has` of a fact that is always there"))
                    }
                    None => Err(ExpressionError::UnknownName(name)),
                };
            }
            _ => self.operand(&select.operand)?,
        };
        let typed = match of {
            Operand::Table(table) if select.test => self.has(table, name)?,
            Operand::Table(table) => lookup(table, name)?,
            Operand::Map(map) if select.test => known(&map, name),
            Operand::Map(map) => pick(map, name),
            Operand::Value(value) => return Err(mistyped(&select.field, "a map", value.kind)),
        };
        Ok(Operand::Value(typed))
    }

    /// The names of a chain, unless it begins with a variable.
    fn qualified_name(&self, select: &SelectExpr) -> Option<String> {
        match &select.operand.expr {
            Expr::Ident(root) if !self.is_variable(root) => {
                Some(format!("{root}.{}", select.field))
            }
            _ => None,
        }
    }

    fn is_variable(&self, name: &str) -> bool {
        self.variables.iter().any(|(own, ..)| own == name)
    }

    fn attribute(&self, attribute: Attribute) -> Result<Operand> {
        let (node, length) = match attribute {
            Attribute::Table(table) => return Ok(Operand::Table(table)),
            Attribute::Fact(Fact::Country) if !self.has_countries => {
                return Err(ExpressionError::NoCountries);
            }
            Attribute::Fact(fact) => (
                Node::Fact(fact),
                match fact {
                    Fact::Path | Fact::Query => TEXT,
                    Fact::Host => 255,
                    Fact::Scheme | Fact::Method => 16,
                    Fact::Address => 45,
                    Fact::Country => 2,
                },
            ),
            Attribute::Header(name) => (Node::Header(name), TEXT),
        };
        Ok(Operand::Value(Typed { node, kind: Kind::Text, length, cost: 1 + length }))
    }

    fn has(&self, table: Table, name: Typed) -> Result<Typed> {
        if let (Table::Headers, Node::Text(name)) = (table, &name.node) {
            header_name(name)?;
        }
        let cost = 1 + name.cost + name.length + TEXT;
        Ok(Typed { node: Node::Has(table, Box::new(name.node)), kind: Kind::Bool, length: 0, cost })
    }

    fn list(&mut self, elements: &[IdedExpr]) -> Result<Typed> {
        let (mut nodes, mut kind, mut length, mut cost) = (Vec::new(), None, 0, 1);
        for element in elements {
            let typed = self.value(element)?;
            let own =
                typed.kind.element().ok_or(ExpressionError::Unsupported("a list of lists"))?;
            if *kind.get_or_insert(own) != own {
                return Err(ExpressionError::Unsupported("a list of values of several types"));
            }
            length = typed.length.max(length);
            cost += typed.cost;
            nodes.push(typed.node);
        }
        let kind = Kind::List(kind.ok_or(ExpressionError::Unsupported("an empty list"))?);
        Ok(Typed { node: Node::List(nodes), kind, length, cost })
    }

    fn each(&mut self, each: &ComprehensionExpr) -> Result<Typed> {
        let unsupported = ExpressionError::Unsupported("a macro such as `map` or `filter`");
        let Expr::Call(step) = &each.loop_step.expr else { return Err(unsupported) };
        let is_count = matches!(each.accu_init.expr, Expr::Literal(LiteralValue::Int(_)));
        let (quantifier, body) = match (step.func_name.as_str(), &step.args[..]) {
            (operators::LOGICAL_OR, [_, body]) => (Quantifier::Exists, body),
            (operators::LOGICAL_AND, [_, body]) => (Quantifier::All, body),
            (operators::CONDITIONAL, [body, ..]) if is_count => (Quantifier::ExistsOne, body),
            _ => return Err(unsupported),
        };
        let (range, kind, length, cost, count) = match self.operand(&each.iter_range)? {
            Operand::Table(table) => {
                let cost = (TEXT + NAMES * NAME) * SPLIT_BYTE as u64;
                (Range::Names(table), Kind::Text, NAME, cost, NAMES)
            }
            Operand::Map(map) => {
                let count = map.values.len() as u64;
                let names = map.values.into_keys().map(Node::Text).collect();
                (Range::Elements(Box::new(Node::List(names))), Kind::Text, NAME, count, count)
            }
            Operand::Value(list) => {
                let Kind::List(element) = list.kind else {
                    return Err(mistyped("exists` and `all", "a list or a map", list.kind));
                };
                let count = match &list.node {
                    Node::List(elements) => elements.len() as u64,
                    _ => NAMES,
                };
                let range = Range::Elements(Box::new(list.node));
                (range, element.into(), list.length, list.cost, count)
            }
        };
        self.variables.push((each.iter_var.clone(), kind, length));
        let body = self.value(body);
        self.variables.pop();
        let body = body?;
        if body.kind != Kind::Bool {
            return Err(mistyped("exists` and `all", "a condition", body.kind));
        }
        let cost = cost.saturating_add(count.saturating_mul(body.cost));
        let node = Node::Each(quantifier, range, Box::new(body.node));
        Ok(Typed { node, kind: Kind::Bool, length: 0, cost: cost + 1 })
    }

    fn call(&mut self, call: &CallExpr) -> Result<Typed> {
        let name = call.func_name.as_str();
        match (&call.target, &call.args[..]) {
            (None, [one, other]) if name == operators::INDEX => self.index(one, other),
            (None, [one, other]) if name == operators::IN => self.within_list(one, other),
            (None, [one, other]) if name == "matches" => self.matches(one, other),
            (None, [one]) if name == "size" => self.size(one),
            (None, args) => {
                let args = args.iter().map(|arg| self.value(arg)).collect::<Result<Vec<_>>>();
                function(name, args)
            }
            (Some(target), [other]) if name == "matches" => self.matches(target, other),
            (Some(target), [address]) if name == "containsIP" => self.contains_ip(target, address),
            (Some(target), []) if name == "size" => self.size(target),
            (Some(target), args) => {
                let all = std::iter::once(&**target).chain(args);
                let all = all.map(|arg| self.value(arg)).collect::<Result<Vec<_>>>();
                method(name, all)
            }
        }
    }

    fn index(&mut self, of: &IdedExpr, by: &IdedExpr) -> Result<Typed> {
        let (of, by) = (self.operand(of)?, self.value(by)?);
        match of {
            Operand::Table(_) | Operand::Map(_) if by.kind != Kind::Text => {
                Err(mistyped("[]", "a text", by.kind))
            }
            Operand::Table(table) => lookup(table, by),
            Operand::Map(map) => Ok(pick(map, by)),
            Operand::Value(list) => {
                let Kind::List(element) = list.kind else {
                    return Err(mistyped("[]", "a list or a map before it", list.kind));
                };
                if by.kind != Kind::Int {
                    return Err(mistyped("[]", "a whole number", by.kind));
                }
                let (length, cost) = (list.length, 1 + list.cost + by.cost);
                let node = Node::At(Box::new([list.node, by.node]));
                Ok(Typed { node, kind: element.into(), length, cost })
            }
        }
    }

    fn within_list(&mut self, one: &IdedExpr, list: &IdedExpr) -> Result<Typed> {
        let (one, list) = (self.value(one)?, self.operand(list)?);
        match list {
            Operand::Table(_) | Operand::Map(_) if one.kind != Kind::Text => {
                Err(mistyped("in", "a text before a map", one.kind))
            }
            Operand::Table(table) => self.has(table, one),
            Operand::Map(map) => Ok(known(&map, one)),
            Operand::Value(list) => {
                if !matches!(list.kind, Kind::List(_)) {
                    return Err(mistyped("in", "a list or a map behind it", list.kind));
                }
                if one.kind.element().map(Kind::List) != Some(list.kind) {
                    return Err(mistyped("in", "a value of the list's type", one.kind));
                }
                let length = one.length.min(list.length) + 1;
                let cost = 1 + one.cost + list.cost + length.saturating_mul(NAMES.max(list.cost));
                Ok(Typed { node: among(one.node, list.node), kind: Kind::Bool, length: 0, cost })
            }
        }
    }

    fn matches(&mut self, of: &IdedExpr, regex: &IdedExpr) -> Result<Typed> {
        let of = self.value(of)?;
        if of.kind != Kind::Text {
            return Err(mistyped("matches", "a text", of.kind));
        }
        let regex = written(regex).ok_or(ExpressionError::NotWritten("matches"))?;
        let regex = pattern::regex(regex).map_err(ExpressionError::Regex)?;
        let cost = 1 + of.cost + of.length * REGEX_BYTE as u64;
        Ok(Typed {
            node: Node::Matches(Box::new(of.node), regex),
            kind: Kind::Bool,
            length: 0,
            cost,
        })
    }

    /// `cidr('10.0.0.0/8').containsIP(address)`.
    fn contains_ip(&mut self, target: &IdedExpr, address: &IdedExpr) -> Result<Typed> {
        let cidr = match &target.expr {
            Expr::Call(call) if call.target.is_none() && call.func_name == "cidr" => &call.args[..],
            _ => {
                return Err(ExpressionError::Unsupported(
                    "`containsIP` without `cidr('...')` before it",
                ));
            }
        };
        let [prefix] = cidr else { return Err(ExpressionError::Arguments("cidr".to_owned())) };
        let prefix = written(prefix).ok_or(ExpressionError::NotWritten("cidr"))?;
        let parsed: AddressPrefix =
            prefix.parse().map_err(|_| ExpressionError::Prefix(prefix.to_owned()))?;
        let address = self.value(address)?;
        if address.kind != Kind::Text {
            return Err(mistyped("containsIP", "a text", address.kind));
        }
        let cost = 1 + address.cost + address.length;
        let node = Node::Within(parsed, Box::new(address.node));
        Ok(Typed { node, kind: Kind::Bool, length: 0, cost })
    }

    fn size(&mut self, of: &IdedExpr) -> Result<Typed> {
        let (node, cost) = match self.operand(of)? {
            Operand::Table(table) => {
                (Node::Count(table), (TEXT + NAMES * NAME) * SPLIT_BYTE as u64)
            }
            Operand::Map(map) => (Node::Int(map.values.len() as i64), 1),
            Operand::Value(typed) => match typed.kind {
                Kind::Text | Kind::List(_) => {
                    (Node::Size(Box::new(typed.node)), typed.cost + typed.length)
                }
                other => return Err(mistyped("size", "a text, a list or a map", other)),
            },
        };
        Ok(Typed { node, kind: Kind::Int, length: 0, cost: cost + 1 })
    }
}

/// A written map: its names and values stand there.
fn map(map: &MapExpr) -> Result<WrittenMap> {
    let mut read: Option<WrittenMap> = None;
    for entry in &map.entries {
        let EntryExpr::MapEntry(entry) = &entry.expr else {
            return Err(ExpressionError::Unsupported("a message"));
        };
        let name = written(&entry.key).ok_or(ExpressionError::NotWritten("a map's name"))?;
        let Expr::Literal(value) = &entry.value.expr else {
            return Err(ExpressionError::Unsupported("a map of values that are computed"));
        };
        let value = literal(value)?;
        let map = read.get_or_insert_with(|| WrittenMap {
            values: BTreeMap::new(),
            kind: value.kind,
            length: 0,
        });
        if map.kind != value.kind {
            return Err(ExpressionError::Unsupported("a map of values of several types"));
        }
        map.length = map.length.max(value.length);
        if map.values.insert(name.to_owned(), value.node).is_some() {
            return Err(ExpressionError::Unsupported("a map that has a name twice"));
        }
    }
    read.ok_or(ExpressionError::Unsupported("an empty map"))
}

fn literal(literal: &LiteralValue) -> Result<Typed> {
    let (node, kind, length) = match literal {
        LiteralValue::Boolean(value) => (Node::Bool(*value.inner()), Kind::Bool, 0),
        LiteralValue::Int(value) => (Node::Int(*value.inner()), Kind::Int, 0),
        LiteralValue::String(text) => {
            (Node::Text(text.inner().to_owned()), Kind::Text, text.inner().len() as u64)
        }
        LiteralValue::Bytes(_) => return Err(ExpressionError::Unsupported("bytes")),
        LiteralValue::Double(_) => {
            return Err(ExpressionError::Unsupported("a number with a point"));
        }
        LiteralValue::UInt(_) => return Err(ExpressionError::Unsupported("an unsigned number")),
        LiteralValue::Null => return Err(ExpressionError::Unsupported("null")),
    };
    Ok(Typed { node, kind, length, cost: 1 })
}

fn written(of: &IdedExpr) -> Option<&str> {
    match &of.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}

fn mistyped(of: &str, wanted: &'static str, found: Kind) -> ExpressionError {
    ExpressionError::Type { of: of.to_owned(), wanted, found: found.as_str() }
}

fn header_name(name: &str) -> Result<HeaderName> {
    let parsed = HeaderName::try_from(name);
    let parsed = parsed.map_err(|_| ExpressionError::HeaderName(name.to_owned()))?;
    match changes_on_the_way(&parsed) {
        true => Err(ExpressionError::ChangesOnTheWay(name.to_owned())),
        false => Ok(parsed),
    }
}

fn lookup(table: Table, name: Typed) -> Result<Typed> {
    let cost = 1 + name.cost + name.length + TEXT;
    let node = match (table, name.node) {
        (Table::Headers, Node::Text(name)) => Node::Header(header_name(&name)?),
        (_, node) => Node::Lookup(table, Box::new(node)),
    };
    Ok(Typed { node, kind: Kind::Text, length: TEXT, cost })
}

fn pick(map: WrittenMap, name: Typed) -> Typed {
    let cost = 1 + name.cost + name.length;
    let node = Node::Pick(map.values, Box::new(name.node));
    Typed { node, kind: map.kind, length: map.length, cost }
}

/// Whether a written map has a name.
fn known(map: &WrittenMap, name: Typed) -> Typed {
    let cost = 1 + name.cost + (name.length + 1) * map.values.len() as u64;
    let names = map.values.keys().cloned().collect();
    Typed { node: Node::Among(names, Box::new(name.node)), kind: Kind::Bool, length: 0, cost }
}

/// Whether a list has a value; one of written texts needs no memory.
fn among(one: Node, list: Node) -> Node {
    match list {
        Node::List(elements) if elements.iter().all(|one| matches!(one, Node::Text(_))) => {
            let text = |node| if let Node::Text(text) = node { Some(text) } else { None };
            Node::Among(elements.into_iter().filter_map(text).collect(), Box::new(one))
        }
        list => Node::In(Box::new([one, list])),
    }
}

/// A call without a target: an operator, or a conversion.
fn function(name: &str, args: Result<Vec<Typed>>) -> Result<Typed> {
    let comparison = match name {
        operators::EQUALS => Some((Comparison::Equal, "==")),
        operators::NOT_EQUALS => Some((Comparison::NotEqual, "!=")),
        operators::LESS => Some((Comparison::Less, "<")),
        operators::LESS_EQUALS => Some((Comparison::LessOrEqual, "<=")),
        operators::GREATER => Some((Comparison::Greater, ">")),
        operators::GREATER_EQUALS => Some((Comparison::GreaterOrEqual, ">=")),
        _ => None,
    };
    let calculation = match name {
        operators::ADD => Some((Calculation::Add, "+")),
        operators::SUBSTRACT => Some((Calculation::Subtract, "-")),
        operators::MULTIPLY => Some((Calculation::Multiply, "*")),
        operators::DIVIDE => Some((Calculation::Divide, "/")),
        operators::MODULO => Some((Calculation::Remainder, "%")),
        _ => None,
    };
    let logic = match name {
        operators::LOGICAL_AND => Some("&&"),
        operators::LOGICAL_OR => Some("||"),
        operators::LOGICAL_NOT => Some("!"),
        _ => None,
    };
    let is_known = comparison.is_some()
        || calculation.is_some()
        || logic.is_some()
        || [operators::CONDITIONAL, operators::NEGATE, "int", "string"].contains(&name);
    if !is_known {
        return Err(unknown_function(name));
    }
    let args = args?;
    if let Some((by, sign)) = comparison {
        return compare(by, sign, two(sign, args)?);
    }
    if let Some((how, sign)) = calculation {
        return calculate(how, sign, two(sign, args)?);
    }
    if let Some(sign) = logic {
        return logical(name, sign, args);
    }
    if name == operators::CONDITIONAL {
        return choice(args);
    }
    let arguments = |_| ExpressionError::Arguments(name.to_owned());
    let [of] = <[Typed; 1]>::try_from(args).map_err(arguments)?;
    let cost = 1 + of.cost + of.length;
    let (node, kind, length) = match (name, of.kind) {
        (operators::NEGATE, Kind::Int) => {
            let parts = Box::new([Node::Int(0), of.node]);
            (Node::Calculate(Calculation::Subtract, parts), Kind::Int, 0)
        }
        (operators::NEGATE, other) => return Err(mistyped("-", "a whole number", other)),
        (_, Kind::List(_)) => return Err(mistyped(name, "a text or a number", of.kind)),
        ("int", Kind::Bool) => return Err(mistyped(name, "a text", of.kind)),
        ("int", _) => (Node::ToInt(Box::new(of.node)), Kind::Int, 0),
        _ => (Node::ToText(Box::new(of.node)), Kind::Text, of.length.max(20)),
    };
    Ok(Typed { node, kind, length, cost: cost + 1 })
}

fn two(name: &str, args: Vec<Typed>) -> Result<[Typed; 2]> {
    args.try_into().map_err(|_| ExpressionError::Arguments(name.to_owned()))
}

fn compare(by: Comparison, sign: &str, [one, other]: [Typed; 2]) -> Result<Typed> {
    if one.kind != other.kind {
        let wanted = match one.kind {
            Kind::Bool => "true or false on both sides",
            Kind::Int => "whole numbers on both sides",
            Kind::Text => "texts on both sides",
            Kind::List(_) => "single values",
        };
        return Err(mistyped(sign, wanted, other.kind));
    }
    if matches!(one.kind, Kind::List(_)) {
        return Err(mistyped(sign, "single values", one.kind));
    }
    let cost = 1 + one.cost + other.cost + one.length.min(other.length);
    let node = Node::Compare(by, Box::new([one.node, other.node]));
    Ok(Typed { node, kind: Kind::Bool, length: 0, cost })
}

fn calculate(how: Calculation, sign: &str, [one, other]: [Typed; 2]) -> Result<Typed> {
    let (length, cost) = (one.length + other.length, 1 + one.cost + other.cost);
    let parts = Box::new([one.node, other.node]);
    match (how, one.kind, other.kind) {
        (_, Kind::Int, Kind::Int) => {
            Ok(Typed { node: Node::Calculate(how, parts), kind: Kind::Int, length: 0, cost })
        }
        (Calculation::Add, Kind::Text, Kind::Text) => {
            Ok(Typed { node: Node::Join(parts), kind: Kind::Text, length, cost: cost + length })
        }
        (Calculation::Add, Kind::Text | Kind::Int, found) => {
            Err(mistyped(sign, "two texts or two whole numbers", found))
        }
        (Calculation::Add, found, _) => {
            Err(mistyped(sign, "two texts or two whole numbers", found))
        }
        (_, Kind::Int, found) | (_, found, _) => Err(mistyped(sign, "whole numbers", found)),
    }
}

fn logical(name: &str, sign: &str, args: Vec<Typed>) -> Result<Typed> {
    if let Some(other) = args.iter().find(|arg| arg.kind != Kind::Bool) {
        return Err(mistyped(sign, "true or false", other.kind));
    }
    let cost = 1 + args.iter().map(|arg| arg.cost).sum::<u64>();
    let mut nodes: Vec<Node> = args.into_iter().map(|arg| arg.node).collect();
    let last = nodes.pop().ok_or_else(|| ExpressionError::Arguments(sign.to_owned()))?;
    let node = match (name, nodes.pop()) {
        (operators::LOGICAL_AND, Some(first)) => Node::And(Box::new([first, last])),
        (operators::LOGICAL_OR, Some(first)) => Node::Or(Box::new([first, last])),
        _ => Node::Not(Box::new(last)),
    };
    Ok(Typed { node, kind: Kind::Bool, length: 0, cost })
}

fn choice(args: Vec<Typed>) -> Result<Typed> {
    let arguments = |_| ExpressionError::Arguments("? :".to_owned());
    let [condition, one, other] = <[Typed; 3]>::try_from(args).map_err(arguments)?;
    if condition.kind != Kind::Bool {
        return Err(mistyped("? :", "true or false before it", condition.kind));
    }
    if one.kind != other.kind {
        return Err(mistyped("? :", "two values of one type", other.kind));
    }
    let (kind, length) = (one.kind, one.length.max(other.length));
    let cost = 1 + condition.cost + one.cost.max(other.cost);
    let node = Node::If(Box::new([condition.node, one.node, other.node]));
    Ok(Typed { node, kind, length, cost })
}

/// A call on a text.
fn method(name: &str, all: Result<Vec<Typed>>) -> Result<Typed> {
    let test = match name {
        "startsWith" => Some(TextTest::StartsWith),
        "endsWith" => Some(TextTest::EndsWith),
        "contains" => Some(TextTest::Contains),
        _ => None,
    };
    if test.is_none() && !["lowerAscii", "upperAscii", "split"].contains(&name) {
        return Err(unknown_function(name));
    }
    let all = all?;
    if let Some(other) = all.iter().find(|arg| arg.kind != Kind::Text) {
        return Err(mistyped(name, "a text", other.kind));
    }
    let cost = 1 + all.iter().map(|arg| arg.cost + arg.length).sum::<u64>();
    let length = all.first().map_or(0, |text| text.length);
    let mut nodes = all.into_iter().map(|arg| arg.node);
    let (node, kind, length) = match (test, nodes.next(), nodes.next(), nodes.next()) {
        (Some(test), Some(one), Some(other), None) => {
            (Node::Test(test, Box::new([one, other])), Kind::Bool, 0)
        }
        (None, Some(of), None, None) if name == "lowerAscii" => {
            (Node::Lower(Box::new(of)), Kind::Text, length)
        }
        (None, Some(of), None, None) if name == "upperAscii" => {
            (Node::Upper(Box::new(of)), Kind::Text, length)
        }
        (None, Some(of), Some(by), None) if name == "split" => {
            (Node::Split(Box::new([of, by])), Kind::List(Element::Text), length.min(NAME))
        }
        _ => return Err(ExpressionError::Arguments(name.to_owned())),
    };
    let cost = if name == "split" { cost.saturating_mul(SPLIT_BYTE as u64) } else { cost };
    Ok(Typed { node, kind, length, cost })
}

fn unknown_function(name: &str) -> ExpressionError {
    // Operators are functions of a name that no one writes.
    match name {
        "cidr" => ExpressionError::Unsupported("`cidr` without `.containsIP(...)` behind it"),
        _ if name.contains('_')
            && !name.starts_with(|first: char| first.is_ascii_alphanumeric()) =>
        {
            ExpressionError::Unsupported("this operator")
        }
        _ => ExpressionError::UnknownFunction(name.to_owned()),
    }
}
