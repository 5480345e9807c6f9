//! The trait [`Book`] for histories in memory.

use std::collections::{BTreeMap, BTreeSet};

use memtrace_model::{
    AccountNumber, AccountTotals, ActivityChanges, Amount, Bytes, EventClass, ImageId, LiveChanges, Losses,
    MemoryCounter, OomKill, PressureCounter,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::changes::details_of;
use super::stored::StoredInterval;
use super::{Identities, MemoryBook};
use crate::book::Book;
use crate::boundaries::{Boundary, IntervalRow, MarkRow};
use crate::exact_totals::ExactTotals;
use crate::file::Error;
use crate::gap::Gap;
use crate::header::Header;
use crate::interval::{
    AccountNames, Detail, Fact, FactValue, ImageChange, ImageValue, Locations, RecordedActivity, RecordedImage,
    Subject, TotalKey, activity,
};
use crate::memory_timeline::MemoryTimelineBuilder;
use crate::merged_images::MergedImages;
use crate::totals::{ImageValues, Parts, Sums, Totals};

impl Book for MemoryBook {
    fn header(&self) -> &Header {
        &self.header
    }

    fn intervals(&self) -> &[IntervalRow] {
        &self.rows
    }

    fn marks(&self) -> &[MarkRow] {
        &self.marks
    }

    fn gaps(&self) -> &[Gap] {
        &[]
    }

    fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn is_salvaged(&self) -> bool {
        false
    }

    fn set_end_of_run(&mut self, end: ExactTotals) {
        self.exact_totals = Some(end);
        self.is_complete = true;
    }

    fn exact_totals(&self) -> Option<&ExactTotals> {
        self.exact_totals.as_ref()
    }

    fn facts(&self, at: Boundary) -> Result<Vec<Fact>, Error> {
        let mut facts: BTreeMap<(&str, &str), &FactValue> = BTreeMap::new();
        for fact in self.between(Boundary::START, at).flat_map(|(_, content)| &content.rest.facts) {
            facts.insert((&fact.topic, &fact.item), &fact.value);
        }
        let fact = |((topic, item), value): ((&str, &str), &FactValue)| Fact {
            topic: topic.to_owned().into(),
            item: item.to_owned().into(),
            value: value.clone(),
        };
        Ok(facts.into_iter().map(fact).collect())
    }

    fn locations(&self) -> Result<Locations, Error> {
        Ok(self.locations.clone())
    }

    fn totals_in_parts(&self, bounds: &[Boundary]) -> Result<Totals, Error> {
        let (Some(&from), Some(&to)) = (bounds.first(), bounds.last()) else { return Ok(Totals::default()) };
        let mut sums: BTreeMap<TotalKey, Sums> = BTreeMap::new();
        let mut totals = Totals::default();
        let mut parts = (bounds.len() > 2).then(|| Parts::new(bounds));
        for (_, content) in self.between(Boundary::START, from) {
            add_values(&mut totals.images, content, ImageValue::is_state);
        }
        for (end, content) in self.between(from, to) {
            for (key, change) in content.changes.iter() {
                let sum = sums.entry(key).or_default();
                sum.usage += change.usage;
                details_of(key, &change.histograms).for_each(|detail| add_detail(sum, &detail));
                if let Some(parts) = parts.as_mut().filter(|_| self.images.is_running(key.image, to)) {
                    let (live, alloc) = (change.usage.live().bytes, change.usage.alloc().bytes);
                    parts.add(end.id, live, alloc, &mut sum.live_changes);
                }
            }
            for detail in &content.rest.details {
                add_detail(sums.entry(detail.key).or_default(), detail);
            }
            add_values(&mut totals.images, content, |_| true);
            for stall in &content.rest.stalls {
                totals.stalls.entry((stall.image, stall.key)).or_default().merge(&stall.stats);
            }
            totals.losses.merge(&content.rest.losses);
        }
        let stacks = sums.into_iter().map(|(key, sum)| sum.into_total(key));
        totals.stacks = stacks.filter(|stack| !stack.usage.is_zero() || !stack.details.is_empty()).collect();
        Ok(totals)
    }

    fn live_changes(&self, bounds: &[Boundary]) -> Result<FxHashMap<TotalKey, LiveChanges>, Error> {
        let mut by_key: FxHashMap<TotalKey, LiveChanges> = FxHashMap::default();
        let (Some(&from), Some(&to)) = (bounds.first(), bounds.last()) else { return Ok(by_key) };
        let mut parts = Parts::new(bounds);
        for (end, content) in self.between(from, to) {
            for (key, change) in content.changes.iter().filter(|(key, _)| self.images.is_running(key.image, to)) {
                let (live, alloc) = (change.usage.live().bytes, change.usage.alloc().bytes);
                parts.add(end.id, live, alloc, by_key.entry(key).or_default());
            }
        }
        by_key.retain(|_, changes| !changes.as_slice().is_empty());
        Ok(by_key)
    }

    fn amounts_over_time(&self, class: EventClass) -> Result<Vec<(Boundary, Amount, Amount)>, Error> {
        let (mut live, mut alloc) = (Amount::default(), Amount::default());
        let at_end = self.between(Boundary::START, self.end()).map(|(end, content)| {
            for (_, change) in content.changes.iter().filter(|(key, _)| key.class == class) {
                live += change.usage.live();
                alloc += change.usage.alloc();
            }
            (end, live, alloc)
        });
        Ok(at_end.collect())
    }

    fn memory_over_time(&self, to: Boundary) -> Result<MemoryTimelineBuilder, Error> {
        let images = self.images.at(to);
        let mut timeline = MemoryTimelineBuilder::default();
        let mut ends: BTreeMap<Boundary, Vec<ImageId>> = BTreeMap::new();
        for (id, end) in images.iter().filter_map(|(id, image)| Some((*id, image.ended?.1.since_start()))) {
            ends.entry(self.boundary_after(end)).or_default().push(id);
        }
        let name = |timeline: &mut MemoryTimelineBuilder, id: ImageId| {
            images.get(&id).into_iter().for_each(|image| timeline.set_comm(id, &image.comm));
        };
        for (end, content) in self.between(Boundary::START, to) {
            let mut changes: BTreeMap<(EventClass, ImageId), [Bytes; 2]> = BTreeMap::new();
            for (key, change) in content.changes.iter().filter(|(key, _)| self.header.classes.contains(&key.class)) {
                let [live, alloc] = changes.entry((key.class, key.image)).or_default();
                live.0 = live.0.wrapping_add(change.usage.live().bytes.0);
                alloc.0 = alloc.0.wrapping_add(change.usage.alloc().bytes.0);
            }
            for ((class, id), [live, alloc]) in changes {
                timeline.add_change(class, id, live.0, alloc.0);
                name(&mut timeline, id);
            }
            for sample in &content.rest.samples {
                match sample.subject {
                    Subject::Process(id) => {
                        if let Some(counter) = MemoryCounter::from_name(&sample.counter) {
                            timeline.set(id, counter, sample.value);
                            name(&mut timeline, id);
                        }
                    }
                    Subject::Machine => {
                        let counter = PressureCounter::from_name(&sample.counter);
                        counter.into_iter().for_each(|counter| timeline.set_pressure(counter, sample.value));
                    }
                    Subject::Memtrace | Subject::Cgroup(_) => {}
                }
            }
            ends.remove(&end).into_iter().flatten().for_each(|image| timeline.end(image));
            timeline.end_interval(end.at());
        }
        for mark in self.marks.iter().filter(|mark| mark.boundary <= to) {
            timeline.add_mark(mark.mark.at, &mark.mark.text);
        }
        Ok(timeline)
    }

    fn losses_of_intervals(&self, from: Boundary, to: Boundary) -> Result<BTreeMap<Boundary, Losses>, Error> {
        let with_losses = self.between(from, to).filter(|(_, content)| content.rest.losses.total() > 0);
        Ok(with_losses.map(|(end, content)| (end, content.rest.losses.clone())).collect())
    }

    fn images(&self, at: Boundary) -> Result<BTreeMap<ImageId, RecordedImage>, Error> {
        Ok(self.images.at(at))
    }

    fn merged_images(
        &self,
        from: Boundary,
        to: Boundary,
    ) -> Result<BTreeMap<(ImageId, EventClass), MergedImages>, Error> {
        let mut merged: BTreeMap<_, MergedImages> = BTreeMap::new();
        for (key, images) in self.between(from, to).flat_map(|(_, content)| &content.merged) {
            merged.entry(*key).or_default().merge(images);
        }
        Ok(merged)
    }

    fn oom_kills(&self, at: Boundary) -> Result<Vec<OomKill>, Error> {
        Ok(self.images.oom_kills(at))
    }

    fn activity(&self, from: Boundary, to: Boundary) -> Result<Option<RecordedActivity>, Error> {
        if self.identities.names.is_empty() {
            return Ok(None);
        }
        let mut found = RecordedActivity::default();
        for (_, content) in self.between(from, to) {
            found.changes.append(content.rest.activity.clone());
            activity::add_calls(&mut found.calls, &content.rest.calls);
            found.left_out += content.rest.activity_left_out;
        }
        self.identities.add_to(&mut found);
        Ok(Some(found))
    }

    fn accounts(&self, from: Boundary, at: Boundary) -> Result<BTreeMap<AccountNumber, AccountTotals>, Error> {
        let mut accounts: BTreeMap<AccountNumber, AccountTotals> = BTreeMap::new();
        for (end, content) in self.between(Boundary::START, at) {
            for account in &content.rest.accounts {
                let totals = account.totals;
                let known = accounts.get(&account.number);
                let totals = match known {
                    // The water marks begin with the live amount at `from`.
                    _ if end <= from => totals.unchanged(),
                    None => totals,
                    Some(known) => known.followed_by(totals),
                };
                accounts.insert(account.number, totals);
            }
        }
        Ok(accounts)
    }

    fn each_account_row(
        &self,
        to: Boundary,
        each: &mut dyn FnMut(Boundary, AccountNumber, AccountTotals),
    ) -> Result<(), Error> {
        for (end, content) in self.between(Boundary::START, to) {
            content.rest.accounts.iter().for_each(|account| each(end, account.number, account.totals));
        }
        Ok(())
    }

    fn account_names(&self) -> Result<Vec<AccountNames>, Error> {
        Ok(self.account_names.values().cloned().collect())
    }
}

impl Identities {
    /// Adds the names, threads, locks and stacks that the activity refers to.
    fn add_to(&self, found: &mut RecordedActivity) {
        let RecordedActivity { changes, stacks, calls, .. } = found;
        let ActivityChanges { threads, locks, spans, events, lock_totals, .. } = changes;
        let of_spans = spans.iter().map(|span| span.thread);
        let used: FxHashSet<u32> = of_spans.chain(events.iter().map(|event| event.thread)).collect();
        threads.extend(self.threads.iter().filter(|(number, _)| used.contains(number)).map(cloned));
        let used: BTreeSet<u32> = spans.iter().filter_map(|span| span.stack).collect();
        let stack = |number| self.stacks.get(&number).map(|&(path, end)| (number, path, end));
        stacks.extend(used.into_iter().filter_map(stack));
        let used = spans.iter().filter_map(|span| span.lock).chain(lock_totals.keys().copied());
        let used: BTreeSet<u32> = used.collect();
        let lock = |number| self.locks.get(&number).map(|lock| (number, *lock));
        locks.extend(used.into_iter().filter_map(lock));
        let mut used: Vec<u32> = activity::names_of(changes, calls).into_iter().collect();
        used.sort_unstable();
        let name = |number| self.names.get(&number).map(|name| (number, name.clone()));
        changes.names.extend(used.into_iter().filter_map(name));
    }
}

fn cloned<K: Copy, V: Clone>((key, value): (&K, &V)) -> (K, V) {
    (*key, value.clone())
}

fn add_detail(sum: &mut Sums, detail: &Detail) {
    let value = sum.details.entry((detail.kind, detail.index)).or_default();
    *value = value.wrapping_add(detail.value);
}

/// Adds the values of the kinds that `is_wanted` accepts.
fn add_values(values: &mut ImageValues, content: &StoredInterval, is_wanted: impl Fn(ImageValue) -> bool) {
    let changes = content.rest.image_changes.iter().filter(|change| is_wanted(change.kind));
    for &ImageChange { image, class, kind, index, value } in changes {
        let sum = values.entry((image, class)).or_default().entry((kind, index)).or_default();
        *sum = kind.add(*sum, value);
    }
}
