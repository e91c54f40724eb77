//! Whether text may have colours: <https://bixense.com/clicolors> and <https://no-color.org>.

use std::{env, ffi::OsString, io::IsTerminal};

/// Whether `stream` gets colours: never with `NO_COLOR`, always with `CLICOLOR_FORCE`, otherwise if it is a
/// terminal that has them and `CLICOLOR` is not 0.
pub fn is_wanted(stream: &impl IsTerminal) -> bool {
    decide(stream.is_terminal(), |name| env::var_os(name))
}

fn decide(is_terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let is_set = |name| variable(name).is_some_and(|value| !value.is_empty());
    let is = |name, word: &str| variable(name).is_some_and(|value| value == word);
    if is_set("NO_COLOR") {
        return false;
    }
    if is_set("CLICOLOR_FORCE") && !is("CLICOLOR_FORCE", "0") {
        return true;
    }
    is_terminal && !is("CLICOLOR", "0") && !is("TERM", "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_decide_before_the_terminal() {
        let decided = |is_terminal, variables: &[(&str, &str)]| {
            decide(is_terminal, |name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| value.into())
            })
        };
        for (variables, in_terminal, in_pipe) in [
            (&[][..], true, false),
            (&[("NO_COLOR", "1")], false, false),
            (&[("NO_COLOR", "")], true, false),
            (&[("CLICOLOR_FORCE", "1")], true, true),
            (&[("CLICOLOR_FORCE", "0")], true, false),
            (&[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")], false, false),
            (&[("CLICOLOR", "0")], false, false),
            (&[("TERM", "dumb")], false, false),
        ] {
            let decisions = (decided(true, variables), decided(false, variables));
            assert_eq!(decisions, (in_terminal, in_pipe), "{variables:?}");
        }
    }
}
