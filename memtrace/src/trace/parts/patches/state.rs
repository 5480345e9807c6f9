//! States of the images of a run that patches processes.

use super::coverage::Source;

/// State of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It is a candidate, or cannot be patched now.
    Waiting,
    /// It has samples of its own.
    Own,
    /// It will be patched, or is being patched.
    Ready,
    Patched,
    Refused,
    /// The option is not given.
    NotAllowed,
}

/// Returns the source of the samples of an image in this state.
pub(super) const fn source_in(state: Option<State>) -> Source {
    match state {
        Some(State::Patched) => Source::Patched,
        Some(State::Own) => Source::Own,
        Some(State::Refused) => Source::Refused,
        Some(State::NotAllowed) => Source::NotAllowed,
        Some(State::Waiting | State::Ready) | None => Source::Idle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_a_source() {
        for (state, source) in [
            (State::Waiting, Source::Idle),
            (State::Own, Source::Own),
            (State::Ready, Source::Idle),
            (State::Patched, Source::Patched),
            (State::Refused, Source::Refused),
            (State::NotAllowed, Source::NotAllowed),
        ] {
            assert_eq!(source_in(Some(state)), source, "{state:?}");
        }
        assert_eq!(source_in(None), Source::Idle);
    }
}
