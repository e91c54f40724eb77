//! Evaluates a checked expression, within a budget.
//!
//! No value of a client leads to a panic or to unbounded work: each step and each byte that is handled is
//! paid from the budget before the work is done. Only lists that are written, and parts of a split text,
//! are ever made, so memory is bounded by the same budget.

use std::{borrow::Cow, cell::Cell, cmp::Ordering};

use crate::{CountryLookup, RequestFacts};

use super::{
    BUDGET,
    attributes::{self, Fact, Table},
    node::{Calculation, Comparison, Node, Quantifier, Range, TextTest},
};

/// Why an evaluation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A written map has no such name.
    #[error("the map has no such name")]
    NoName,
    /// A list has no such element.
    #[error("the list has no such element")]
    NoElement,
    /// A text is no whole number.
    #[error("the text is no whole number")]
    NoNumber,
    /// A result is out of range.
    #[error("a number is out of range")]
    OutOfRange,
    /// A division by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// The budget is used up.
    #[error("it costs more than {BUDGET}")]
    Cost,
    /// A value has another type than the check found. No expression that was checked comes here.
    #[error("a value has the wrong type")]
    Type,
}

#[derive(Clone, Debug)]
pub(super) enum Value<'e> {
    Bool(bool),
    Int(i64),
    Text(Cow<'e, str>),
    List(Vec<Value<'e>>),
}

/// The variable of a macro, and those around it.
pub(super) struct Scope<'s, 'e> {
    value: Value<'e>,
    outer: Option<&'s Scope<'s, 'e>>,
}

/// One evaluation.
pub(super) struct Evaluation<'e> {
    facts: &'e RequestFacts<'e>,
    countries: Option<&'e dyn CountryLookup>,
    is_key: bool,
    budget: Cell<u64>,
}

type Evaluated<'e> = Result<Value<'e>, Failure>;

impl<'e> Evaluation<'e> {
    pub(super) fn new(
        facts: &'e RequestFacts<'_>,
        countries: Option<&'e dyn CountryLookup>,
        is_key: bool,
    ) -> Self {
        Self { facts, countries, is_key, budget: Cell::new(BUDGET) }
    }

    pub(super) fn of(&self, node: &'e Node, scope: Option<&Scope<'_, 'e>>) -> Evaluated<'e> {
        self.pay(1)?;
        let of = |node| self.of(node, scope);
        let bool = |node| self.of(node, scope)?.bool();
        let int = |node| self.of(node, scope)?.int();
        let text = |node| self.of(node, scope)?.text();
        Ok(match node {
            Node::Bool(value) => Value::Bool(*value),
            Node::Int(value) => Value::Int(*value),
            Node::Text(value) => Value::Text(Cow::Borrowed(value)),
            Node::Fact(fact) => Value::Text(self.fact(*fact)?),
            Node::Header(name) => {
                self.pay(Table::Headers.size(self.facts, name.as_str()))?;
                Value::Text(attributes::header(self.facts, name))
            }
            Node::Mapped(mapping) => {
                let value = mapping.text(self.facts);
                self.pay(mapping.weight() + value.len())?;
                Value::Text(Cow::Owned(value))
            }
            Node::Lookup(table, name) => {
                let name = text(name)?;
                self.pay(name.len() + table.size(self.facts, &name))?;
                Value::Text(table.get(self.facts, &name).unwrap_or_default())
            }
            Node::Has(table, name) => {
                let name = text(name)?;
                self.pay(name.len() + table.size(self.facts, &name))?;
                Value::Bool(table.get(self.facts, &name).is_some())
            }
            Node::Count(table) => Value::Int(self.names(*table)?.len() as i64),
            Node::Variable(outwards) => variable(scope, *outwards)?,
            Node::Not(of) => Value::Bool(!bool(of)?),
            Node::And(of) => Value::Bool(either(bool(&of[0]), || bool(&of[1]), false)?),
            Node::Or(of) => Value::Bool(either(bool(&of[0]), || bool(&of[1]), true)?),
            Node::If(parts) => of(if bool(&parts[0])? { &parts[1] } else { &parts[2] })?,
            Node::Compare(by, parts) => {
                Value::Bool(self.compare(*by, &of(&parts[0])?, &of(&parts[1])?)?)
            }
            Node::Calculate(how, parts) => {
                Value::Int(calculate(*how, int(&parts[0])?, int(&parts[1])?)?)
            }
            Node::Join(parts) => {
                let (one, other) = (text(&parts[0])?, text(&parts[1])?);
                self.pay(one.len() + other.len())?;
                Value::Text(one + other)
            }
            Node::Test(test, parts) => {
                let (one, other) = (text(&parts[0])?, text(&parts[1])?);
                Value::Bool(match test {
                    TextTest::Contains => {
                        self.pay(one.len() + other.len())?;
                        one.contains(&*other)
                    }
                    TextTest::StartsWith => {
                        self.pay(other.len())?;
                        one.starts_with(&*other)
                    }
                    TextTest::EndsWith => {
                        self.pay(other.len())?;
                        one.ends_with(&*other)
                    }
                })
            }
            Node::Matches(of, regex) => {
                let text = text(of)?;
                self.pay(text.len() * REGEX_BYTE)?;
                Value::Bool(regex.is_match(&text))
            }
            Node::Within(prefix, of) => {
                let address = text(of)?;
                self.pay(address.len())?;
                Value::Bool(address.parse().is_ok_and(|address| prefix.contains(address)))
            }
            Node::Size(of) => Value::Int(match self.of(of, scope)? {
                Value::List(list) => list.len() as i64,
                value => {
                    let text = value.text()?;
                    self.pay(text.len())?;
                    text.chars().count() as i64
                }
            }),
            Node::Lower(of) => {
                let text = text(of)?;
                self.pay(text.len())?;
                Value::Text(changed(
                    text,
                    |byte| byte.is_ascii_uppercase(),
                    str::make_ascii_lowercase,
                ))
            }
            Node::Upper(of) => {
                let text = text(of)?;
                self.pay(text.len())?;
                Value::Text(changed(
                    text,
                    |byte| byte.is_ascii_lowercase(),
                    str::make_ascii_uppercase,
                ))
            }
            Node::Split(parts) => {
                let (text, by) = (text(&parts[0])?, text(&parts[1])?);
                self.pay(text.len() * SPLIT_BYTE + by.len())?;
                Value::List(split(&text, &by))
            }
            Node::ToInt(of) => match self.of(of, scope)? {
                value @ Value::Int(_) => value,
                value => Value::Int(value.text()?.parse().map_err(|_| Failure::NoNumber)?),
            },
            Node::ToText(node) => Value::Text(Cow::Owned(of(node)?.into_text())),
            Node::List(elements) => Value::List(elements.iter().map(of).collect::<Result<_, _>>()?),
            Node::At(parts) => {
                let (Value::List(mut list), at) = (of(&parts[0])?, int(&parts[1])?) else {
                    return Err(Failure::Type);
                };
                let at = usize::try_from(at).ok().filter(|at| *at < list.len());
                list.swap_remove(at.ok_or(Failure::NoElement)?)
            }
            Node::Among(written, of) => {
                let text = text(of)?;
                self.pay((text.len() + 1) * written.len())?;
                Value::Bool(written.iter().any(|one| *one == text))
            }
            Node::In(parts) => {
                let sought = of(&parts[0])?;
                let Value::List(list) = of(&parts[1])? else { return Err(Failure::Type) };
                for element in &list {
                    if self.compare(Comparison::Equal, &sought, element)? {
                        return Ok(Value::Bool(true));
                    }
                }
                Value::Bool(false)
            }
            Node::Pick(map, name) => {
                let name = text(name)?;
                self.pay(name.len())?;
                of(map.get(&*name).ok_or(Failure::NoName)?)?
            }
            Node::Each(quantifier, range, body) => {
                Value::Bool(self.each(*quantifier, range, body, scope)?)
            }
        })
    }

    fn fact(&self, fact: Fact) -> Result<Cow<'e, str>, Failure> {
        let facts = self.facts;
        let text = match fact {
            Fact::Path => Cow::Borrowed(&*facts.path),
            Fact::Query => Cow::Borrowed(facts.query()),
            Fact::Host => Cow::Borrowed(facts.host),
            Fact::Scheme => Cow::Borrowed(facts.scheme.as_str()),
            // Only requests that read share a key.
            Fact::Method if self.is_key => Cow::Borrowed("GET"),
            Fact::Method => Cow::Borrowed(facts.method.as_str()),
            Fact::Address => Cow::Owned(facts.client.to_string()),
            Fact::Country => {
                let country = self.countries.and_then(|of| of.country(facts.client));
                Cow::Owned(country.unwrap_or_default())
            }
        };
        Ok(text)
    }

    /// A failure counts only if no other value decides, as for `&&` and `||`.
    fn each(
        &self,
        quantifier: Quantifier,
        range: &'e Range,
        body: &'e Node,
        outer: Option<&Scope<'_, 'e>>,
    ) -> Result<bool, Failure> {
        let values: Vec<Value<'e>> = match range {
            Range::Names(table) => self.names(*table)?.into_iter().map(Value::Text).collect(),
            Range::Elements(node) => match self.of(node, outer)? {
                Value::List(list) => list,
                _ => return Err(Failure::Type),
            },
        };
        let (mut holding, mut failure) = (0, None);
        for value in values {
            match self.of(body, Some(&Scope { value, outer })).and_then(|value| value.bool()) {
                Ok(true) if quantifier == Quantifier::Exists => return Ok(true),
                Ok(false) if quantifier == Quantifier::All => return Ok(false),
                Ok(holds) => holding += usize::from(holds),
                Err(found @ (Failure::Cost | Failure::Type)) => return Err(found),
                Err(found) => failure = Some(found),
            }
        }
        match (failure, quantifier) {
            (Some(failure), _) => Err(failure),
            (None, Quantifier::Exists) => Ok(false),
            (None, Quantifier::All) => Ok(true),
            (None, Quantifier::ExistsOne) => Ok(holding == 1),
        }
    }

    fn names(&self, table: Table) -> Result<Vec<Cow<'e, str>>, Failure> {
        self.pay(table.size(self.facts, "") * SPLIT_BYTE)?;
        let names = table.names(self.facts);
        self.pay(names.iter().map(|name| name.len() + 1).sum())?;
        Ok(names.into_iter().collect())
    }

    fn compare(&self, by: Comparison, one: &Value<'_>, other: &Value<'_>) -> Result<bool, Failure> {
        let order = match (one, other) {
            (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
            (Value::Int(one), Value::Int(other)) => one.cmp(other),
            (Value::Text(one), Value::Text(other)) => {
                self.pay(one.len().min(other.len()))?;
                one.cmp(other)
            }
            _ => return Err(Failure::Type),
        };
        Ok(match by {
            Comparison::Equal => order == Ordering::Equal,
            Comparison::NotEqual => order != Ordering::Equal,
            Comparison::Less => order == Ordering::Less,
            Comparison::LessOrEqual => order != Ordering::Greater,
            Comparison::Greater => order == Ordering::Greater,
            Comparison::GreaterOrEqual => order != Ordering::Less,
        })
    }

    fn pay(&self, cost: usize) -> Result<(), Failure> {
        let left = self.budget.get().checked_sub(cost as u64);
        self.budget.set(left.unwrap_or(0));
        left.map(drop).ok_or(Failure::Cost)
    }
}

/// The cost of a byte that a regular expression reads, and of one in a text that is split: each may become
/// an element.
pub(super) const REGEX_BYTE: usize = 2;
pub(super) const SPLIT_BYTE: usize = 4;

impl<'e> Value<'e> {
    fn bool(self) -> Result<bool, Failure> {
        if let Self::Bool(value) = self { Ok(value) } else { Err(Failure::Type) }
    }

    fn int(self) -> Result<i64, Failure> {
        if let Self::Int(value) = self { Ok(value) } else { Err(Failure::Type) }
    }

    fn text(self) -> Result<Cow<'e, str>, Failure> {
        if let Self::Text(value) = self { Ok(value) } else { Err(Failure::Type) }
    }

    pub(super) fn into_text(self) -> String {
        match self {
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Text(value) => value.into_owned(),
            Self::List(list) => {
                let texts: Vec<String> = list.into_iter().map(Self::into_text).collect();
                texts.join(",")
            }
        }
    }
}

/// `&&` where `decides` is false, `||` where it is true: either side decides, even if the other one fails.
fn either(
    one: Result<bool, Failure>,
    other: impl FnOnce() -> Result<bool, Failure>,
    decides: bool,
) -> Result<bool, Failure> {
    match one {
        Ok(value) if value == decides => Ok(decides),
        Ok(_) => other(),
        Err(failure @ (Failure::Cost | Failure::Type)) => Err(failure),
        Err(failure) => match other()? {
            value if value == decides => Ok(decides),
            _ => Err(failure),
        },
    }
}

fn variable<'e>(mut scope: Option<&Scope<'_, 'e>>, outwards: usize) -> Evaluated<'e> {
    for _ in 0..outwards {
        scope = scope.and_then(|scope| scope.outer);
    }
    scope.map(|scope| scope.value.clone()).ok_or(Failure::Type)
}

fn calculate(how: Calculation, one: i64, other: i64) -> Result<i64, Failure> {
    let result = match how {
        Calculation::Add => one.checked_add(other),
        Calculation::Subtract => one.checked_sub(other),
        Calculation::Multiply => one.checked_mul(other),
        Calculation::Divide | Calculation::Remainder if other == 0 => {
            return Err(Failure::DivisionByZero);
        }
        Calculation::Divide => one.checked_div(other),
        Calculation::Remainder => one.checked_rem(other),
    };
    result.ok_or(Failure::OutOfRange)
}

fn changed(text: Cow<'_, str>, differs: fn(&u8) -> bool, change: fn(&mut str)) -> Cow<'_, str> {
    if !text.bytes().any(|byte| differs(&byte)) {
        return text;
    }
    let mut text = text.into_owned();
    change(&mut text);
    Cow::Owned(text)
}

/// An empty separator gives the characters.
fn split<'e>(text: &str, by: &str) -> Vec<Value<'e>> {
    let value = |part: &str| Value::Text(Cow::Owned(part.to_owned()));
    if by.is_empty() {
        return text.chars().map(|one| value(one.encode_utf8(&mut [0; 4]))).collect();
    }
    text.split(by).map(value).collect()
}
