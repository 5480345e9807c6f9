//! Compiles the C files of the service, with frame pointers.

fn main() {
    cc::Build::new()
        .file("native/sessions.c")
        .file("native/requests.c")
        .opt_level_str("1")
        .debug(true)
        .flag("-fno-omit-frame-pointer")
        .flag("-fno-optimize-sibling-calls")
        .warnings_into_errors(true)
        .compile("native");
    for file in ["native/sessions.c", "native/requests.c", "native/service.h"] {
        println!("cargo:rerun-if-changed={file}");
    }
}
