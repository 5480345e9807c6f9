//! Frames of calls: functions, including inline frames.

use memtrace_model::{Frame, FrameId};

/// Distinct frames, and the frames of each call, outermost first.
#[derive(Clone, Debug, Default)]
pub(super) struct FramesOfCalls {
    frames: Vec<Frame>,
    of_calls: Vec<Box<[FrameId]>>,
}

impl FramesOfCalls {
    /// Numbers the frames of each call in the sort order of frames, so that the order of stacks does not depend on
    /// load addresses.
    pub(super) fn new(frames: Vec<Box<[Frame]>>) -> Self {
        let mut of_calls: Vec<Box<[FrameId]>> =
            frames.iter().map(|frames| vec![FrameId::new(0); frames.len()].into()).collect();
        let with_position = |(call, frames): (usize, Box<[Frame]>)| {
            frames.into_iter().enumerate().map(move |(position, frame)| (frame, call, position))
        };
        let mut all: Vec<_> = frames.into_iter().enumerate().flat_map(with_position).collect();
        all.sort_unstable();
        let mut distinct: Vec<Frame> = Vec::new();
        for (frame, call, position) in all {
            if distinct.last() != Some(&frame) {
                distinct.push(frame);
            }
            of_calls[call][position] = FrameId::new(distinct.len() - 1);
        }
        Self { frames: distinct, of_calls }
    }

    /// Keeps the frames of used calls, and removes all other frames. `is_used`: one flag for each call.
    pub(super) fn retain(&mut self, is_used: &[bool]) {
        let mut numbers: Vec<Option<FrameId>> = vec![None; self.frames.len()];
        for (of_call, is_used) in self.of_calls.iter_mut().zip(is_used) {
            if *is_used {
                of_call.iter().for_each(|frame| numbers[frame.index()] = Some(*frame));
            } else {
                *of_call = Box::default();
            }
        }
        let used = numbers.iter_mut().flatten().enumerate();
        used.for_each(|(index, number)| *number = FrameId::new(index));
        let mut is_used = numbers.iter().map(Option::is_some);
        self.frames.retain(|_| is_used.next().unwrap_or(false));
        for frame in self.of_calls.iter_mut().flatten() {
            *frame = numbers[frame.index()].unwrap_or(*frame);
        }
    }

    /// Returns the frames of the call with this index.
    pub(super) fn of(&self, call: usize) -> &[FrameId] {
        &self.of_calls[call]
    }

    /// Returns the distinct frames.
    pub(super) fn into_frames(self) -> Vec<Frame> {
        self.frames
    }
}
