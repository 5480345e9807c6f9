//! Reader of an object's file, which builds its table.

use std::fs::File;
use std::io;

use super::contents::Contents;
use super::error::Error;
use super::table::Table;

/// Builds the table of the object in `file`.
///
/// # Errors
///
/// The reason why the object has no table.
pub fn read(file: &File) -> Result<Table, Error> {
    Table::build(&contents(file)?)
}

/// Reads the code and the call frame information of the object in `file`.
pub(super) fn contents(file: &File) -> Result<Contents, Error> {
    if !file.metadata()?.is_file() {
        return Err(Error::Io(io::Error::from(io::ErrorKind::InvalidInput)));
    }
    Contents::find(file)
}
