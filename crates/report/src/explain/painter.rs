//! Terminal colours of the text of `memtrace explain`.

/// Character of the bars of parts.
pub(super) const OUTER: char = '#';
/// Character of the bars of subparts.
pub(super) const INNER: char = '-';

/// Importance of a conclusion. It selects the colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    Plain,
    Warning,
    Alarm,
}

/// Adds terminal colours (ECMA-48, SGR) if enabled.
pub(super) struct Painter {
    colour: bool,
}

impl Painter {
    pub(super) const fn new(colour: bool) -> Self {
        Self { colour }
    }

    /// Makes a heading or a command bold.
    pub(super) fn strong(&self, text: &str) -> String {
        self.set_off(text, "1")
    }

    /// Colours a conclusion by its importance.
    pub(super) fn by_weight(&self, text: &str, weight: Weight) -> String {
        match weight {
            Weight::Plain => text.to_owned(),
            Weight::Warning => self.set_off(text, "33"),
            Weight::Alarm => self.set_off(text, "1;31"),
        }
    }

    /// Colours the bars of a chart. In each line, a bar of either kind starts at the first mark of this kind that
    /// follows two blanks.
    pub(super) fn bars(&self, picture: &str) -> String {
        if !self.colour {
            return picture.to_owned();
        }
        let mut painted = String::with_capacity(picture.len() * 2);
        for line in picture.split_inclusive('\n') {
            painted += &[(OUTER, "36"), (INNER, "2")].iter().fold(line.to_owned(), |line, (ink, code)| {
                let Some(start) = line.find(&format!("  {ink}")).map(|at| at + 2) else { return line };
                let length = line[start..].chars().take_while(|letter| letter == ink).count();
                let (before, rest) = line.split_at(start);
                let (bar, behind) = rest.split_at(length);
                format!("{before}{}{behind}", self.set_off(bar, code))
            });
        }
        painted
    }

    fn set_off(&self, text: &str, code: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
