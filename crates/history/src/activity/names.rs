//! Assigns ids to names.

use rustc_hash::FxHashMap;

/// Maximum number of names with ids of their own. Further names share an id.
const MAX_NAMES: usize = 1 << 15;

/// Name that stands for all names beyond [`MAX_NAMES`].
const OTHER: &str = "[other names]";

/// Names and their numbers.
#[derive(Debug, Default)]
pub(super) struct Names {
    numbers: FxHashMap<String, u32>,
    /// Names that are new since the last call of [`Self::take_new`].
    new: Vec<(u32, String)>,
}

impl Names {
    /// Returns the id of a name, and assigns one if the name is new.
    pub(super) fn number(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        if self.numbers.len() >= MAX_NAMES && name != OTHER {
            return self.number(OTHER);
        }
        // There are far fewer names than 2^32.
        let number = self.numbers.len() as u32;
        self.numbers.insert(name.to_owned(), number);
        self.new.push((number, name.to_owned()));
        number
    }

    /// Returns the names that are new since the last call.
    pub(super) fn take_new(&mut self) -> Vec<(u32, String)> {
        std::mem::take(&mut self.new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_numbers_in_order() {
        let mut names = Names::default();
        assert_eq!(["a", "b", "a"].map(|name| names.number(name)), [0, 1, 0]);
        assert_eq!(names.take_new(), [(0, String::from("a")), (1, String::from("b"))]);
        assert!(names.take_new().is_empty());
    }

    #[test]
    fn names_beyond_the_limit_share_a_number() {
        let mut names = Names::default();
        (0..MAX_NAMES).for_each(|number| _ = names.number(&number.to_string()));
        let other = names.number("a");
        assert_eq!((other, names.number("b"), names.number("7")), (MAX_NAMES as u32, MAX_NAMES as u32, 7));
    }
}
