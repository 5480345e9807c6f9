//! Unpacks the kernel in Debian's `vmlinuz`. This saves some seconds of each boot under emulation.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Compression formats: the magic number, and the command that unpacks the format, with its arguments.
const FORMATS: &[(&[u8], &str, &[&str])] = &[(b"\xfd7zXZ", "xz", &["-dc"]), (b"\x28\xb5\x2f\xfd", "zstd", &["-dcq"])];

/// Magic number of an unpacked kernel.
const ELF: &[u8] = b"\x7fELF";

/// Unpacks the kernel. An image in an unknown format is returned unchanged.
pub(super) fn unpack(image: Vec<u8>) -> Result<Vec<u8>> {
    let Some(payload) = payload(&image) else { return Ok(image) };
    let Some((_, program, arguments)) = FORMATS.iter().find(|(magic, ..)| payload.starts_with(magic)) else {
        return Ok(image);
    };
    let unpacked = filter(program, arguments, payload)?;
    if unpacked.starts_with(ELF) { Ok(unpacked) } else { bail!("{program} did not unpack an ELF file from the kernel") }
}

/// Returns the compressed kernel, located by the setup header (Documentation/arch/x86/boot.rst: `setup_sects`,
/// `payload_offset`, `payload_length`), without the appended size.
fn payload(image: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| Some(u32::from_le_bytes(*image.get(at..)?.first_chunk()?) as usize);
    (image.get(0x202..0x206)? == b"HdrS").then_some(())?;
    let sectors = usize::from(*image.get(0x1f1)?);
    let start = (sectors + 1) * 512 + word(0x248)?;
    image.get(start..start.checked_add(word(0x24c)?)?.checked_sub(4)?)
}

fn filter(program: &str, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {program} to unpack the kernel"))?;
    let mut stdin = child.stdin.take();
    std::thread::scope(|scope| {
        // Another thread writes the input, because both pipes have a limited size. If the write fails, the command
        // fails too.
        scope.spawn(move || stdin.take().map(|mut stdin| stdin.write_all(input)));
        let output = child.wait_with_output().with_context(|| format!("cannot wait for {program}"))?;
        if output.status.success() { Ok(output.stdout) } else { bail!("{program} failed to unpack the kernel") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_is_located_by_the_setup_header() {
        let mut image = vec![0; 0x600 + 12];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x24c].copy_from_slice(&0x200_u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&12_u32.to_le_bytes());
        image[0x600..0x608].copy_from_slice(b"compress");
        assert_eq!(payload(&image), Some(&b"compress"[..]));
        assert_eq!(payload(&image[..0x600]), None);
        assert_eq!(payload(b"\x7fELF"), None);
    }

    #[test]
    fn uncompressed_image_is_unchanged() {
        assert_eq!(unpack(b"\x7fELF and so on".to_vec()).unwrap(), b"\x7fELF and so on");
    }
}
