//! The rules of all objects, each once.

use memtrace_common::unwind::{MAX_RULES, Rule};
use rustc_hash::FxHashMap;

use super::rule::UNTABLED;

/// Numbers rules. All objects of a machine have some thousands of different ones.
#[derive(Clone, Debug)]
pub struct Interner {
    rules: Vec<Rule>,
    numbers: FxHashMap<Rule, u32>,
    refused: u64,
}

impl Default for Interner {
    fn default() -> Self {
        Self::new()
    }
}

impl Interner {
    /// The number of [`Rule::default`]: nothing is known.
    pub const NOTHING: u32 = 0;
    /// The number of the rule that says that there is information which no table can hold.
    pub const UNTABLED: u32 = 1;

    /// An interner that knows the two rules that always have the same number.
    #[must_use]
    pub fn new() -> Self {
        let mut interner = Self { rules: Vec::new(), numbers: FxHashMap::default(), refused: 0 };
        interner.number(Rule::default());
        interner.number(UNTABLED);
        interner
    }

    /// The number of `rule`, below [`MAX_RULES`]; [`Self::UNTABLED`] where it would be one too many, so that a stack ends
    /// there.
    pub fn number(&mut self, rule: Rule) -> u32 {
        if let Some(number) = self.numbers.get(&rule) {
            return *number;
        }
        let number = match u32::try_from(self.rules.len()) {
            Ok(number) if self.rules.len() < MAX_RULES => number,
            _ => {
                self.refused += 1;
                return Self::UNTABLED;
            }
        };
        self.rules.push(rule);
        self.numbers.insert(rule, number);
        number
    }

    /// The rules, by number.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// How many rules of objects had no room.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use memtrace_common::unwind::cfa;

    use super::*;

    fn rule(cfa_offset: usize) -> Rule {
        Rule { cfa_kind: cfa::SP, cfa_offset: i32::try_from(cfa_offset).unwrap(), ..Rule::default() }
    }

    #[test]
    fn a_rule_has_one_number_and_a_number_one_rule() {
        let mut interner = Interner::new();
        let (eight, sixteen) = (interner.number(rule(8)), interner.number(rule(16)));
        assert_eq!(interner.number(rule(8)), eight);
        assert_eq!(interner.rules()[eight as usize], rule(8));
        assert_eq!(interner.rules()[sixteen as usize], rule(16));
        assert_eq!(interner.number(Rule::default()), Interner::NOTHING);
        assert_eq!(interner.number(UNTABLED), Interner::UNTABLED);
        assert_eq!(interner.rules().len(), 4);
    }

    #[test]
    fn a_rule_too_many_ends_the_stack_and_is_counted() {
        let mut interner = Interner::new();
        for offset in 2..MAX_RULES {
            assert_eq!(interner.number(rule(offset)) as usize, offset);
        }
        assert_eq!(interner.number(rule(MAX_RULES)), Interner::UNTABLED);
        assert_eq!(interner.rules().len(), MAX_RULES);
        assert_eq!(interner.number(rule(2)), 2, "what is known stays known");
        assert_eq!(interner.refused(), 1);
    }
}
