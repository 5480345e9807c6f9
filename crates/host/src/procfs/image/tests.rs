use std::ffi::CStr;
use std::fs;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::ptr;

use super::*;

fn own_image() -> ProcessImage {
    read_image(Pid(std::process::id()), &mut Objects::new()).unwrap()
}

fn path_at(image: &ProcessImage, address: usize) -> Option<&Path> {
    let mapping = image.mapping_at(AbsAddr(address as u64)).expect("the address is mapped");
    mapping.object.as_ref().map(|object| object.path.as_path())
}

#[test]
fn code_addresses_of_this_process_are_in_its_objects() {
    let image = own_image();
    let exe = std::env::current_exe().unwrap();
    assert_eq!(image.exe.as_deref(), Some(exe.as_path()));
    assert_eq!(path_at(&image, own_image as *const () as usize), Some(exe.as_path()));

    let malloc = libc::malloc as *const () as usize;
    // SAFETY: Dl_info is plain data, and all zeros are a value of it.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is valid for the length of the call.
    assert_ne!(unsafe { libc::dladdr(malloc as *const libc::c_void, &raw mut info) }, 0);
    // SAFETY: the call succeeded, so this is the path of a loaded object.
    let expected = unsafe { CStr::from_ptr(info.dli_fname) }.to_str().unwrap();
    let expected = fs::canonicalize(expected).unwrap();
    assert_eq!(path_at(&image, malloc), Some(expected.as_path()));
}

#[test]
fn kernel_code_is_an_object_without_a_handle() {
    let image = own_image();
    let vdso = image.objects();
    let vdso = vdso.filter(|object| object.path == Path::new("[vdso]")).collect::<Vec<_>>();
    assert_eq!(vdso.len(), 1);
    assert_eq!((&vdso[0].handle, &vdso[0].build_id), (&None, &None));
}

#[test]
fn code_without_a_file_has_no_object() {
    let length = 4096;
    let protection = libc::PROT_READ | libc::PROT_EXEC;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: creates a new mapping and changes no other.
    let code = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, -1, 0) };
    assert_ne!(code, libc::MAP_FAILED, "{}", io::Error::last_os_error());
    let found = path_at(&own_image(), code as usize).map(Path::to_owned);
    // SAFETY: unmaps the mapping made above, which has no references.
    unsafe { libc::munmap(code, length) };
    assert_eq!(found, None);
}

/// Maps a memfd with `content` as executable, and returns the path of the object there.
fn path_of_memfd(content: &[u8]) -> Option<PathBuf> {
    let length = 4096;
    let mut file = File::from(rustix::fs::memfd_create("code", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    file.write_all(content).unwrap();
    file.set_len(length as u64).unwrap();
    let protection = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: creates a new mapping and changes no other.
    let code = unsafe { libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert_ne!(code, libc::MAP_FAILED, "{}", io::Error::last_os_error());
    let found = path_at(&own_image(), code as usize).map(Path::to_owned);
    // SAFETY: unmaps the mapping made above, which has no references.
    unsafe { libc::munmap(code, length) };
    found
}

#[test]
fn privileged_code_in_a_memfd_has_an_object_if_it_is_elf() {
    let program = fs::read(std::env::current_exe().unwrap()).unwrap();
    assert_eq!(path_of_memfd(&program[..4096]), Some(PathBuf::from("/memfd:code")));
    assert_eq!(path_of_memfd(&[0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3]), None);
    assert_eq!(path_of_memfd(&[]), None);
}

#[test]
fn mappings_are_ordered_and_do_not_overlap() {
    let image = own_image();
    assert!(image.mappings.len() > 3);
    assert!(image.mappings.iter().all(|mapping| mapping.start < mapping.end));
    assert!(image.mappings.windows(2).all(|pair| pair[0].end <= pair[1].start));
}

#[test]
fn a_process_without_memory_has_ended() {
    let nobody = Pid((1 << 22) + 1);
    let result = read_image(nobody, &mut Objects::new());
    assert!(matches!(result, Err(ProcessError::Exited(pid)) if pid == nobody), "{result:?}");
}
