//! Compiles `random.c` into the program: see there.

fn main() {
    println!("cargo::rerun-if-changed=src/random.c");
    let objects = cc::Build::new()
        .file("src/random.c")
        .compile_intermediates();
    for object in objects {
        println!("cargo::rustc-link-arg-bins={}", object.display());
    }
    // The `getrandom` crate looks it up by name while the program runs.
    println!("cargo::rustc-link-arg-bins=-rdynamic");
}
