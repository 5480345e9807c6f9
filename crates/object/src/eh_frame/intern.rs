//! Numbers of the distinct rules of all objects.

use memtrace_common::unwind::{MAX_RULES, Rule};
use rustc_hash::FxHashMap;

use super::rule::UNTABLED;

/// Assigns a number to each distinct rule. All objects of a machine together have some thousands of distinct rules.
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
    /// Number of [`Rule::default`]: no information.
    pub(crate) const NOTHING: u32 = 0;
    /// Number of the rule for call frame information that no rule can express.
    pub const UNTABLED: u32 = 1;

    /// Creates an interner with the two rules that have fixed numbers.
    #[must_use]
    pub fn new() -> Self {
        let mut interner = Self { rules: Vec::new(), numbers: FxHashMap::default(), refused: 0 };
        interner.number(Rule::default());
        interner.number(UNTABLED);
        interner
    }

    /// Returns the number of `rule`, which is less than [`MAX_RULES`]. If all numbers are taken, returns
    /// [`Self::UNTABLED`], which ends a walk.
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

    /// Returns the rules, by number.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns the number of requests for a new rule that were refused, because all numbers were taken.
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
    fn each_rule_has_one_number() {
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
    fn a_rule_beyond_the_limit_ends_the_stack_and_is_counted() {
        let mut interner = Interner::new();
        for offset in 2..MAX_RULES {
            assert_eq!(interner.number(rule(offset)) as usize, offset);
        }
        assert_eq!(interner.number(rule(MAX_RULES)), Interner::UNTABLED);
        assert_eq!(interner.rules().len(), MAX_RULES);
        assert_eq!(interner.number(rule(2)), 2, "known rules keep their numbers");
        assert_eq!(interner.refused(), 1);
    }
}
