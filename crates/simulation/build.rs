//! Links the tests of this crate with the randomness of `fixed_random.c`.

fn main() {
    let source = "src/fixed_random.c";
    println!("cargo:rerun-if-changed={source}");
    for object in cc::Build::new().file(source).compile_intermediates() {
        println!("cargo:rustc-link-arg-tests={}", object.display());
    }
}
