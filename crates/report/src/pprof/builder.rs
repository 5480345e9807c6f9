//! Conversion of a profile to the tables of `profile.proto`.

use memtrace_model::{Frame, FrameId, Measure, ObjectName, Profile, Quantity, StackProfile, printable};
use rustc_hash::FxHashMap;

use super::messages::{Function, Label, Line, Location, Mapping, Profile as Message, Sample, ValueType};
use crate::estimate::SampledPart;
use crate::metrics::MetricView;
use crate::options::Options;
use crate::{escape, format, samplers};

/// Builder of the tables. The ID of a row is its position in the table, from 1.
pub(super) struct ProfileBuilder<'a> {
    profile: &'a Profile,
    /// Key of the label that shows [`StackProfile::label`]: the value of `--by`.
    key: &'static str,
    views: Vec<MetricView<'a>>,
    strings: FxHashMap<String, u32>,
    mappings: FxHashMap<&'a ObjectName, u64>,
    functions: FxHashMap<(i64, i64), u64>,
    locations: FxHashMap<Place<'a>, u64>,
    message: Message,
}

/// Identity of a location.
#[derive(PartialEq, Eq, Hash)]
enum Place<'a> {
    /// A function and the functions that are inlined at the call, the outermost first.
    Frames(&'a [FrameId]),
    /// A text where frames are missing.
    Text(String),
}

impl<'a> ProfileBuilder<'a> {
    pub(super) fn new(profile: &'a Profile, key: &'static str) -> Self {
        let mut builder = Self {
            profile,
            key,
            views: MetricView::measured(profile),
            strings: FxHashMap::default(),
            mappings: FxHashMap::default(),
            functions: FxHashMap::default(),
            locations: FxHashMap::default(),
            message: Message::default(),
        };
        // The first string of the table must be empty.
        builder.string("");
        builder
    }

    pub(super) fn build(mut self, options: &Options) -> Message {
        for view in self.views.clone() {
            let value_type = self.value_type(view);
            self.message.sample_type.push(value_type);
        }
        let drawn = MetricView::new(self.profile, options.metric);
        let default = self.views.iter().position(|view| view.has_values_of(&drawn)).unwrap_or_default();
        self.message.default_sample_type = self.message.sample_type.get(default).map_or(0, |default| default.kind);
        for stack in &self.profile.stacks {
            let sample = self.sample(stack);
            if sample.value.iter().any(|value| *value != 0) {
                self.message.sample.push(sample);
            }
        }
        self.message.duration_nanos = i64::try_from(self.profile.run.duration.as_nanos()).unwrap_or(i64::MAX);
        self.set_period();
        let subject = format!("memtrace: {}", escape::visible(&options.subject));
        let comments: Vec<_> = [subject, format::completeness(self.profile)]
            .into_iter()
            .chain(self.profile.run.notes.iter().cloned())
            .collect();
        self.message.comment = comments.iter().map(|comment| self.string(&escape::visible(comment))).collect();
        self.message
    }

    /// Sets the period: the common interval of the samplers, as in Go's heap profiles, or 1. Values are already estimates of
    /// the whole, from sampled blocks and from sampled pages.
    fn set_period(&mut self) {
        self.message.period_type = self.message.sample_type.first().copied();
        self.message.period = 1;
        let is_sampled = SampledPart::of_profile(self.profile).is_sampled();
        if let Some(interval) = samplers::interval(self.profile.run.samplers.all()).filter(|_| is_sampled) {
            self.message.period_type = Some(ValueType { kind: self.string("space"), unit: self.string("bytes") });
            self.message.period = i64::try_from(interval.0).unwrap_or(i64::MAX);
        }
    }

    fn value_type(&mut self, view: MetricView<'_>) -> ValueType {
        ValueType { kind: self.string(view.sample_type()), unit: self.string(unit(view)) }
    }

    fn sample(&mut self, stack: &'a StackProfile) -> Sample {
        let value = self.views.iter().map(|view| view.signed_value(&stack.usage)).collect();
        let mut location_id: Vec<_> = self.locations_of(&stack.frames);
        location_id.extend(escape::instead_of_frames(stack).map(|text| self.text_location(text)));
        location_id.reverse();
        Sample { location_id, value, label: self.labels(stack) }
    }

    /// Returns the locations of frames, the outermost first.
    fn locations_of(&mut self, frames: &'a [FrameId]) -> Vec<u64> {
        let profile = self.profile;
        profile.calls(frames).map(|call| self.location(call)).collect()
    }

    fn location(&mut self, call: &'a [FrameId]) -> u64 {
        if let Some(id) = self.locations.get(&Place::Frames(call)) {
            return *id;
        }
        let profile = self.profile;
        let frames = call.iter().map(|id| &profile.frames[id.index()]);
        let outer = &profile.frames[call[0].index()];
        let mapping_id = outer.object.as_ref().map_or(0, |object| self.mapping(object));
        let line = frames.rev().map(|frame| self.line(frame)).collect();
        let address = outer.offset_or_address();
        self.add_location(Place::Frames(call), Location { id: 0, mapping_id, address, line })
    }

    fn text_location(&mut self, text: String) -> u64 {
        let place = Place::Text(text);
        match (self.locations.get(&place), &place) {
            (Some(id), _) => *id,
            (None, Place::Frames(_)) => 0,
            (None, Place::Text(text)) => {
                let function_id = self.function(text, "");
                let line = vec![Line { function_id, line: 0 }];
                self.add_location(place, Location { line, ..Location::default() })
            }
        }
    }

    fn add_location(&mut self, place: Place<'a>, location: Location) -> u64 {
        let id = self.message.location.len() as u64 + 1;
        self.message.location.push(Location { id, ..location });
        self.locations.insert(place, id);
        id
    }

    /// Returns the mapping of an object. The address range of the mapping is empty, so that addresses of locations
    /// are addresses in the object, like the addresses of symbols.
    fn mapping(&mut self, object: &'a ObjectName) -> u64 {
        if let Some(id) = self.mappings.get(object) {
            return *id;
        }
        let id = self.message.mapping.len() as u64 + 1;
        let filename = self.string(&escape::visible(&printable(&object.path)));
        let build_id = object.build_id.as_ref().map_or(0, |build_id| self.string(&build_id.to_string()));
        self.message.mapping.push(Mapping {
            id,
            filename,
            build_id,
            // Tells pprof not to look for symbols.
            has_functions: true,
            has_filenames: true,
            has_line_numbers: true,
            has_inline_frames: true,
        });
        self.mappings.insert(object, id);
        id
    }

    fn line(&mut self, frame: &Frame) -> Line {
        let location = frame.location.as_ref();
        let file = location.map_or_else(String::new, |location| escape::visible(&printable(&location.file)));
        let function_id = self.function(&escape::visible(&frame.label()), &file);
        Line { function_id, line: location.and_then(|location| location.line).map_or(0, i64::from) }
    }

    fn function(&mut self, name: &str, file: &str) -> u64 {
        let (name, filename) = (self.string(name), self.string(file));
        let functions = &mut self.message.function;
        *self.functions.entry((name, filename)).or_insert_with(|| {
            let id = functions.len() as u64 + 1;
            functions.push(Function { id, name, filename });
            id
        })
    }

    fn labels(&mut self, stack: &StackProfile) -> Vec<Label> {
        let profile = self.profile;
        let process = &profile.processes[stack.process];
        let mut labels = Vec::with_capacity(4);
        if process.group.is_none() {
            labels.push(self.number_label("pid", process.pid.0));
        }
        labels.push(self.text_label("comm", &process.comm.to_string()));
        if let Some(user) = &process.user {
            labels.push(self.text_label("user", &user.to_string()));
        }
        if let Some(cgroup) = &process.cgroup {
            labels.push(self.text_label("cgroup", &cgroup.path));
        }
        if let Some(tid) = stack.part.thread() {
            labels.push(self.number_label("tid", tid.0));
            if let Some(name) = process.thread_names.get(&tid) {
                labels.push(self.text_label("thread", name));
            }
        }
        if let Some(name) = stack.part.allocator().and_then(|id| profile.run.allocators.get(&id)) {
            labels.push(self.text_label("allocator", name));
        }
        if let Some(kind) = stack.part.memory() {
            labels.push(self.text_label("memory", kind.name()));
        }
        if let Some(label) = stack.label {
            labels.push(self.text_label(self.key, &profile.labels[label.index()]));
        } else if let Some(tag) = stack.part.tag().and_then(|id| profile.run.tags.get(&id)) {
            labels.push(self.text_label("tag", &tag.text(profile.run.tag_format)));
        }
        labels.extend(self.interval_labels(stack));
        labels
    }

    /// Returns labels with the number of samples of a stack, and with the ends of the interval of each value that is not 0.
    /// Returns no label for an exact stack.
    fn interval_labels(&mut self, stack: &StackProfile) -> Vec<Label> {
        let sampled = SampledPart::of_stack(&stack.usage);
        if !sampled.is_sampled() {
            return Vec::new();
        }
        let samples = stack.usage[Quantity::HeldSamples].cast_signed();
        let mut labels = vec![self.amount_label("samples", samples, "count")];
        for view in self.views.clone() {
            let value = view.signed_value(&stack.usage);
            let Some(uncertainty) = view.uncertainty(&sampled).filter(|_| value != 0) else { continue };
            let margin = uncertainty.margin();
            let ends = [
                ("low", value.saturating_sub_unsigned(margin.below)),
                ("high", value.saturating_add_unsigned(margin.above)),
            ];
            for (end, number) in ends {
                labels.push(self.amount_label(&format!("{}_{end}", view.sample_type()), number, unit(view)));
            }
        }
        labels
    }

    fn text_label(&mut self, key: &str, text: &str) -> Label {
        Label { key: self.string(key), str: self.string(&escape::visible(text)), num: 0, num_unit: 0 }
    }

    fn number_label(&mut self, key: &str, number: u32) -> Label {
        Label { key: self.string(key), str: 0, num: i64::from(number), num_unit: 0 }
    }

    fn amount_label(&mut self, key: &str, number: i64, unit: &str) -> Label {
        Label { key: self.string(key), str: 0, num: number, num_unit: self.string(unit) }
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(index) = self.strings.get(text) {
            return i64::from(*index);
        }
        let index = self.strings.len() as u32;
        self.message.string_table.push(String::from(text));
        self.strings.insert(String::from(text), index);
        i64::from(index)
    }
}

/// Returns the name of the unit of the values.
const fn unit(view: MetricView<'_>) -> &'static str {
    match view.measure() {
        Measure::Bytes => "bytes",
        Measure::Count => "count",
        Measure::Time => "nanoseconds",
    }
}

#[cfg(test)]
mod tests;
