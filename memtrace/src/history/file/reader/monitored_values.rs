//! Values of monitored processes and of the machine over time.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::Recording;
use super::query::Query;
use crate::history::boundaries::{Boundary, IntervalRow};
use crate::history::file::error::Error;
use crate::history::interval::{MACHINE_START, Subject};
use crate::model::{ImageId, MachineUsage, MachineValue, ProcessValue, ProcessValues};

impl Recording {
    /// Returns the values of each process at the boundaries at which one of them has changed, in order of time.
    ///
    /// # Errors
    ///
    /// The file is damaged.
    pub fn process_values(&self, to: Boundary) -> Result<BTreeMap<ImageId, Vec<(Boundary, ProcessValues)>>, Error> {
        let mut series: BTreeMap<ImageId, Vec<(Boundary, ProcessValues)>> = BTreeMap::new();
        let counters = self.counters_of(|subject, name| {
            let Subject::Process(image) = subject else { return None };
            Some((image, ProcessValue::ALL.into_iter().find(|value| value.name() == name)?))
        })?;
        self.each_sample(to, |at, counter, number| {
            let Some(&(image, value)) = counters.get(&counter) else { return };
            let rows = series.entry(image).or_default();
            match rows.last_mut() {
                Some((last, values)) if *last == at => values.set(value, Some(number)),
                last => {
                    let mut values = last.map_or_else(ProcessValues::default, |(_, values)| *values);
                    values.set(value, Some(number));
                    rows.push((at, values));
                }
            }
        })?;
        Ok(series)
    }

    /// Returns the usage of the machine in each interval up to a boundary, as the monitor measured it.
    ///
    /// # Errors
    ///
    /// The file is damaged.
    pub fn machine_usage(&self, to: Boundary) -> Result<Vec<(Boundary, MachineUsage)>, Error> {
        let counters =
            self.counters_of(|subject, name| machine_value(name).filter(|_| matches!(subject, Subject::Machine)))?;
        let mut samples: BTreeMap<Boundary, Vec<(MachineValue, u64)>> = BTreeMap::new();
        self.each_sample(to, |at, counter, number| {
            if let Some(&value) = counters.get(&counter) {
                samples.entry(at).or_default().push((value, number));
            }
        })?;
        let mut totals = self.machine_at_start()?;
        let mut usage = Vec::new();
        for at in self.intervals.iter().map(IntervalRow::end).take_while(|at| *at <= to) {
            let earlier = totals;
            for &(value, number) in samples.get(&at).into_iter().flatten() {
                totals.set(value, Some(number));
            }
            usage.push((at, totals.since(&earlier)));
        }
        Ok(usage)
    }

    /// Returns the counters of the machine at the start of the recording.
    fn machine_at_start(&self) -> Result<MachineUsage, Error> {
        let mut start = MachineUsage::default();
        let sql = "SELECT item, value FROM fact WHERE topic = ?";
        self.connection.each_row(sql, [MACHINE_START], |row| {
            if let Some(value) = machine_value(row.get_ref(0)?.as_str().unwrap_or_default()) {
                start.set(value, Some(row.get::<_, i64>(1)?.cast_unsigned()));
            }
            Ok(())
        })?;
        Ok(start)
    }

    /// Returns the counters that `choose` knows, by the number of their row.
    fn counters_of<T>(&self, choose: impl Fn(Subject, &str) -> Option<T>) -> Result<FxHashMap<i64, T>, Error> {
        let counters = self.counters()?;
        Ok(counters.into_iter().filter_map(|(id, (subject, name))| Some((id, choose(subject, &name)?))).collect())
    }

    /// Calls `each` for the samples up to a boundary, in order of time, with the boundary, the counter and the value.
    fn each_sample(&self, to: Boundary, mut each: impl FnMut(Boundary, i64, u64)) -> Result<(), Error> {
        let sql = "SELECT interval, counter, value FROM sample WHERE interval <= ? ORDER BY interval, counter";
        self.connection.each_row(sql, [to.id], |row| {
            each(self.boundary_of(row.get(0)?), row.get(1)?, row.get::<_, i64>(2)?.cast_unsigned());
            Ok(())
        })
    }
}

fn machine_value(name: &str) -> Option<MachineValue> {
    MachineValue::ALL.into_iter().find(|value| value.name() == name)
}
