//! Tags that target processes set themselves.

use crate::vocabulary::{TagAction, TagValue};

/// Maximum number of distinct tags of a run. Blocks with further tags have the tag id [`OTHER_TAGS`].
pub const MAX_TAGS: u32 = 4096;

/// Maximum size in bytes of a tag's name, with the terminating zero. Longer names are cut.
pub const TAG_NAME: usize = 64;

/// Maximum number of nested tags of a thread. A tag that is entered at a deeper level has no effect.
pub const MAX_TAG_LEVELS: usize = 20;

/// Maximum number of processes with a tag of the process ([`TagAction::SetProcess`]).
pub const MAX_TAGGED_PROCESSES: usize = 4096;

/// Tag id of a block without a tag. The ids of tags start at 1.
pub const UNTAGGED: u32 = 0;

/// Common id of all tags beyond [`MAX_TAGS`].
pub const OTHER_TAGS: u32 = MAX_TAGS + 1;

/// Maximum number of functions of a run that change tags and have a [`TagFunctionState`].
pub const MAX_TAG_FUNCTIONS: usize = 64;

/// Maximum number of pointers between an argument and the tag.
pub const MAX_TAG_STEPS: usize = 2;

/// Maximum number of values of an argument that have a count of their own.
pub const SEEN_VALUES: usize = 8;

/// Identity of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct TagKey {
    /// 1 if the tag has a name, 0 if it is a number.
    pub is_name: u64,
    /// The number, or a hash of the name.
    pub value: u64,
}

/// A tag that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct TagEntry {
    /// Id of the tag in records.
    pub number: u32,
    /// Padding: zero.
    pub reserved: u32,
    /// Name of the tag, which ends at the first zero; zeros if the tag is a number.
    pub name: [u8; TAG_NAME],
}

/// Function that changes tags: the field with the tag, and counts of its calls. User space writes the field before it
/// attaches the probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct TagFunctionState {
    /// Number of pointers between the argument and the tag: 0 to [`MAX_TAG_STEPS`].
    pub steps: u32,
    /// Offsets in bytes: the first one is added to the argument, each of the others to a pointer.
    pub offsets: [i32; MAX_TAG_STEPS + 1],
    /// Number of calls.
    pub calls: u64,
    /// Number of calls that changed a tag.
    pub effective: u64,
    /// First distinct values of the argument that the condition tests.
    pub values: [SeenValue; SEEN_VALUES],
    /// Number of calls with other values.
    pub others: u64,
}

/// A value of the argument that a condition tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SeenValue {
    /// The lower 32 bits of the argument, plus 1; 0 if the entry is not used.
    pub key: u64,
    /// Number of calls with this value.
    pub calls: u64,
}

/// BPF cookie of a function that changes the current tag. The lower bits are as in [`crate::vocabulary::Cookie`]: the
/// first place has the index of the argument with the tag, the second place the index of the argument that a condition
/// tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TagCookie(pub u64);

impl TagCookie {
    const ACTION_SHIFT: u32 = 8;
    const IS_NAME: u64 = 1 << 12;
    const IS_HALF: u64 = 1 << 13;
    const FUNCTION_SHIFT: u32 = 16;
    const FUNCTION_MASK: u64 = 0xff;
    const CONDITION_SHIFT: u32 = 32;

    /// Encodes an effect. `tag` is the index of the argument with the tag; `None` if the tag is the function's result,
    /// or if the effect needs no tag. A condition has the index of an argument and a value: the function has an effect
    /// only if the lower 32 bits of the argument equal the value.
    #[must_use]
    pub const fn new(action: TagAction, tag: Option<u8>, value: TagValue, condition: Option<(u8, u32)>) -> Self {
        const NONE: u64 = crate::vocabulary::COOKIE_NONE;
        let tag = match tag {
            Some(argument) => argument as u64 & NONE,
            None => NONE,
        };
        let (tested, expected) = match condition {
            Some((argument, value)) => (argument as u64 & NONE, value as u64),
            None => (NONE, 0),
        };
        let kind = match value {
            TagValue::Word => 0,
            TagValue::Half => Self::IS_HALF,
            TagValue::Name => Self::IS_NAME,
        };
        Self(tag | tested << 4 | (action as u64) << Self::ACTION_SHIFT | kind | expected << Self::CONDITION_SHIFT)
    }

    /// Returns the cookie of the function with this index in the map of [`TagFunctionState`]s, which has
    /// [`MAX_TAG_FUNCTIONS`] entries. The cookie must have no index yet.
    #[must_use]
    pub const fn with_function(self, index: u8) -> Self {
        Self(self.0 | (index as u64 + 1) << Self::FUNCTION_SHIFT)
    }

    /// Returns the index of the function in the map of [`TagFunctionState`]s; `None` if the function has none.
    #[inline(always)]
    #[must_use]
    pub const fn function(self) -> Option<u32> {
        match self.0 >> Self::FUNCTION_SHIFT & Self::FUNCTION_MASK {
            0 => None,
            number => Some(number as u32 - 1),
        }
    }

    /// Returns the effect.
    #[inline(always)]
    #[must_use]
    pub const fn action(self) -> TagAction {
        match self.0 >> Self::ACTION_SHIFT & 0xf {
            0 => TagAction::Set,
            1 => TagAction::Enter,
            2 => TagAction::Leave,
            3 => TagAction::SetProcess,
            4 => TagAction::SetCall,
            5 => TagAction::Claim,
            6 => TagAction::SetLast,
            7 => TagAction::EnterWrapper,
            _ => TagAction::LeaveWrapper,
        }
    }

    /// Returns true if the tag is the address of a C string.
    #[inline(always)]
    #[must_use]
    pub const fn is_name(self) -> bool {
        self.0 & Self::IS_NAME != 0
    }

    /// Returns true if the tag is a number of 32 bits.
    #[inline(always)]
    #[must_use]
    pub const fn is_half(self) -> bool {
        self.0 & Self::IS_HALF != 0
    }

    /// Returns the value without an undefined upper half.
    #[inline(always)]
    #[must_use]
    pub const fn cut(self, value: u64) -> u64 {
        if self.is_half() { value & u32::MAX as u64 } else { value }
    }

    /// Returns the value that the condition expects.
    #[inline(always)]
    #[must_use]
    pub const fn condition(self) -> u32 {
        (self.0 >> Self::CONDITION_SHIFT) as u32
    }
}

const _: () = {
    assert!(size_of::<TagKey>() == 16);
    assert!(size_of::<TagEntry>() == 72);
    assert!(size_of::<SeenValue>() == 16);
    assert!(size_of::<TagFunctionState>() == 168);
    assert!(MAX_TAGS <= u16::MAX as u32);
    assert!((MAX_TAG_FUNCTIONS as u64) <= TagCookie::FUNCTION_MASK);
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::{COOKIE_NONE, Cookie};

    #[test]
    fn cookies_encode_the_effect() {
        let all = [
            TagAction::Set,
            TagAction::Enter,
            TagAction::Leave,
            TagAction::SetProcess,
            TagAction::SetCall,
            TagAction::Claim,
            TagAction::SetLast,
            TagAction::EnterWrapper,
            TagAction::LeaveWrapper,
        ];
        for action in all {
            let cookie = TagCookie::new(action, Some(1), TagValue::Name, Some((0, u32::MAX)));
            assert_eq!(cookie.function(), None);
            for function in [0, MAX_TAG_FUNCTIONS as u8 - 1] {
                let cookie = cookie.with_function(function);
                assert_eq!((cookie.action(), cookie.is_name(), cookie.condition()), (action, true, u32::MAX));
                assert_eq!(cookie.function(), Some(u32::from(function)));
                assert_eq!([0, 1].map(|place| Cookie(cookie.0).argument(place)), [1, 0]);
            }
        }
        let cookie = TagCookie::new(TagAction::Set, None, TagValue::Word, None);
        assert_eq!(cookie.cut(u64::MAX), u64::MAX);
        assert_eq!(TagCookie::new(TagAction::Set, None, TagValue::Half, None).cut(u64::MAX), u64::from(u32::MAX));
        assert_eq!((cookie.is_name(), cookie.condition()), (false, 0));
        assert_eq!([0, 1].map(|place| Cookie(cookie.0).argument(place)), [COOKIE_NONE; 2]);
    }
}
