//! Questions on a terminal: a wrong answer is asked again, with the reason.

use std::io::{BufRead, Write};

/// A user who answers.
pub(super) struct Dialogue<'a, R, W> {
    pub(super) input: &'a mut R,
    pub(super) output: &'a mut W,
}

impl<R: BufRead, W: Write> Dialogue<'_, R, W> {
    /// The first right answer. An empty one is the default; so is the end of the input. `None` if that comes
    /// and there is no default.
    ///
    /// # Errors
    /// When the input cannot be read, or the question not be written.
    pub(super) fn ask<T>(
        &mut self,
        question: &str,
        default: Option<&str>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> anyhow::Result<Option<T>> {
        writeln!(self.output, "{question}")?;
        loop {
            match default {
                Some(default) => write!(self.output, "[{default}] > ")?,
                None => write!(self.output, "> ")?,
            }
            self.output.flush()?;
            let mut line = String::new();
            let is_end = self.input.read_line(&mut line)? == 0;
            let answer = match (line.trim(), default) {
                ("", Some(default)) => default,
                ("", None) if is_end => return Ok(None),
                (answer, _) => answer,
            };
            match read(answer) {
                Ok(answer) => return Ok(Some(answer)),
                Err(reason) => writeln!(self.output, "{reason}")?,
            }
            if is_end {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(input: &str, default: Option<&str>) -> (Option<u16>, String) {
        let mut output = Vec::new();
        let mut dialogue = Dialogue { input: &mut input.as_bytes(), output: &mut output };
        let read = |text: &str| text.parse().map_err(|_| format!("{text:?} is no port"));
        let answer = dialogue.ask("Which port?", default, read).unwrap();
        (answer, String::from_utf8(output).unwrap())
    }

    #[test]
    fn wrong_answers_are_asked_again_with_the_reason() {
        let (answer, said) = asked("x\n99999\n 80 \n", Some("8080"));
        assert_eq!(answer, Some(80));
        assert_eq!(
            said,
            "Which port?\n[8080] > \"x\" is no port\n[8080] > \"99999\" is no port\n[8080] > "
        );
    }

    #[test]
    fn empty_answers_and_the_end_of_input_are_the_default() {
        assert_eq!(asked("\n", Some("8080")).0, Some(8080));
        assert_eq!(asked("", Some("8080")).0, Some(8080));
        assert_eq!(asked("", None).0, None);
        assert_eq!(asked("x", None).0, None);
    }
}
