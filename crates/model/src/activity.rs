//! Activity of threads over time: spans, such as tasks and waits, and events.

mod changes;
mod step;
mod sums;
mod timeline;
mod wait_class;

pub use changes::{ActivityChanges, LockIdentity};
pub use step::{FutexUse, JumpCondition, StepAction, StepKind, StepProbe, StepSequence, ThreadStep};
pub use sums::{CallSums, LockSums, SpanSums};
pub use timeline::{
    ActiveThread, Activity, ActivityEvent, EventValue, LeftOut, LockRow, Span, SpanCounts, SpanKind, SpanLabel,
    SpanRow, UNTIL_TAIL_CALL,
};
pub use wait_class::WaitClass;
