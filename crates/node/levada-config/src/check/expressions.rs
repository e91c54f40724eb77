//! Expressions: read, with a remedy for each mistake.

use levada_rules::{Expression, ExpressionError, FUNCTIONS, NAMES, Purpose};
use levada_types::document::{Path, did_you_mean};

use super::Check;

impl Check<'_, '_> {
    /// The outer `None` marks an error.
    pub(super) fn expression(
        &mut self,
        text: &Option<String>,
        purpose: Purpose,
        path: &Path,
    ) -> Option<Option<Expression>> {
        let Some(text) = text else { return Some(None) };
        let mappings = &*self.mappings.clone();
        let mut parsed = Expression::parse(text, purpose, path.to_string(), None, mappings);
        if let Err(ExpressionError::NoCountries) = parsed {
            let countries = self.client_countries(path)?;
            let place = path.to_string();
            parsed = Expression::parse(text, purpose, place, Some(countries), mappings);
        }
        match parsed {
            Ok(expression) => Some(Some(expression)),
            Err(error) => {
                self.expression_error(&error, path);
                None
            }
        }
    }

    pub(super) fn expression_error(&mut self, error: &ExpressionError, path: &Path) {
        self.error(path, error.to_string()).maybe_help(remedy(error));
    }
}

fn remedy(error: &ExpressionError) -> Option<String> {
    let text = match error {
        ExpressionError::UnknownName(name) => {
            return did_you_mean(name, NAMES.iter().copied())
                .or_else(|| Some(format!("there are {}", NAMES.join(", "))));
        }
        ExpressionError::UnknownFunction(name) => {
            return did_you_mean(name, FUNCTIONS.iter().copied())
                .or_else(|| Some(format!("there are {}", FUNCTIONS.join(", "))));
        }
        ExpressionError::TooLong | ExpressionError::TooDeep => {
            "divide it among several routes, or use a list or a map: `x in ['a', 'b']`"
        }
        ExpressionError::Cost(_) => {
            "a macro within a macro multiplies their costs: ask for one name instead"
        }
        ExpressionError::Result { .. } => "compare it with something, as in `... == 'a'`",
        ExpressionError::Type { .. } => "`int(text)` and `string(number)` convert",
        ExpressionError::ChangesOnTheWay(_) => {
            "use `request.host`, `request.scheme` or `source.address`, which are the same at all nodes"
        }
        ExpressionError::Regex(_) => "as in Rust's regex crate: no look-around, no references back",
        ExpressionError::Prefix(_) => "for example `cidr('10.0.0.0/8').containsIP(source.address)`",
        ExpressionError::Syntax { .. }
        | ExpressionError::Unsupported(_)
        | ExpressionError::Arguments(_)
        | ExpressionError::NotWritten(_)
        | ExpressionError::HeaderName(_)
        | ExpressionError::NoCountries => "see docs/operate/expressions.md for the language",
    };
    Some(text.to_owned())
}
