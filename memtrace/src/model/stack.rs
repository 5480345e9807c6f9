//! Call stacks as the kernel took them.

use std::time::Duration;

pub use memtrace_common::vocabulary::StackEnd;

use super::AbsAddr;

/// A stack's frames, how the walk ended, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Leaf first. All are return addresses: the call is in the byte before.
    pub frames: Box<[AbsAddr]>,
    /// How the walk ended.
    pub end: StackEnd,
    /// When its frames were first sent, since tracing began: by the mappings of that time they have their names.
    pub taken: Duration,
}

impl Stack {
    /// Keeps whichever was taken first: frames that were forgotten are sent again.
    pub fn or_earlier(&mut self, other: Self) {
        if other.taken < self.taken {
            *self = other;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_that_comes_again_was_taken_when_it_came_first() {
        let stack = |nanoseconds| Stack {
            frames: [AbsAddr(1)].into(),
            end: StackEnd::Complete,
            taken: Duration::from_nanos(nanoseconds),
        };
        // Through two rings they may come the other way round.
        for (first, second) in [(5, 9), (9, 5)] {
            let mut kept = stack(first);
            kept.or_earlier(stack(second));
            assert_eq!(kept, stack(5));
        }
    }
}
