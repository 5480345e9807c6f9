//! `memtrace explain`: its arguments to what the session is asked, and its end.

use std::io;

use super::args::Explain;
use super::console::{self, Console};
use super::exit::Exit;
use super::outputs;
use super::resolve::Contradiction;
use crate::report::Format;
use crate::session::explain::{self, Config};
use crate::session::{Destination, Output};

/// Does what is asked.
pub(super) fn run(asked: Explain, console: &Console) -> Exit {
    let config = match config(asked) {
        Ok(config) => config,
        Err(contradiction) => {
            console.error(&contradiction.message, Some(&contradiction.remedy));
            return Exit::Usage;
        }
    };
    match explain::run(&config) {
        Ok(()) => Exit::Success,
        Err(error) => {
            console.error(&error.to_string(), error.remedy().as_deref());
            Exit::from(&error)
        }
    }
}

fn config(asked: Explain) -> Result<Config, Contradiction> {
    let outputs = if asked.outputs.is_empty() {
        vec![Output { destination: Destination::Stdout, format: asked.format.unwrap_or(Format::Text) }]
    } else {
        // What goes to a terminal or a pipe is for people unless told otherwise.
        let to_stdout = asked.outputs.iter().any(|path| path.as_os_str() == "-");
        outputs::resolve(asked.outputs, asked.format.or(to_stdout.then_some(Format::Text)))?
    };
    if let Some(output) = outputs.iter().find(|output| !matches!(output.format, Format::Text | Format::Json)) {
        return Err(Contradiction::new(
            format!("explain does not write {}: there are no stacks in it", output.format.name()),
            "name the file *.txt or *.json",
        ));
    }
    Ok(Config { pid: asked.pid, outputs, top: asked.top, colour: console::wants_colour(&io::stdout()) })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use clap::Parser as _;

    use super::super::args::{Action, Arguments};
    use super::*;
    use crate::model::Pid;

    fn told(words: &[&str]) -> Result<Config, String> {
        let words = ["memtrace", "explain", "--pid", "7"].iter().chain(words);
        let Some(Action::Explain(asked)) = Arguments::try_parse_from(words).expect("arguments").action else {
            panic!("not explain")
        };
        config(asked).map_err(|contradiction| contradiction.message)
    }

    #[test]
    fn without_an_output_the_page_goes_to_standard_output() {
        let config = told(&[]).expect("a page");
        assert_eq!((config.pid, config.top), (Pid(7), 5));
        assert_eq!(config.outputs, [Output { destination: Destination::Stdout, format: Format::Text }]);
        let config = told(&["--format", "json"]).expect("a page");
        assert_eq!(config.outputs, [Output { destination: Destination::Stdout, format: Format::Json }]);
    }

    #[test]
    fn files_are_told_by_their_extension_and_stacks_are_refused() {
        let file = |name: &str, format| Output { destination: Destination::File(PathBuf::from(name)), format };
        let config = told(&["-o", "a.txt", "-o", "a.json"]).expect("a page");
        assert_eq!(config.outputs, [file("a.txt", Format::Text), file("a.json", Format::Json)]);
        let refused = Err(String::from("explain does not write svg: there are no stacks in it"));
        assert_eq!(told(&["-o", "a.svg"]), refused);
        let stdout = Output { destination: Destination::Stdout, format: Format::Text };
        assert_eq!(told(&["-o", "-", "-o", "a.json"]).expect("a page").outputs, [stdout, file("a.json", Format::Json)]);
    }
}
