//! Names of functions, as callgrind prints them: the crate that they belong to, and the function in
//! the source that they are made of.

/// The owner of drop glue, which the compiler makes for types of every crate.
pub(crate) const DROP_GLUE: &str = "drop glue";
/// The owner of functions of Rust's own libraries.
pub(crate) const STD: &str = "std, core, alloc";
/// The owner of functions of the system's libraries, above all copies of memory.
pub(crate) const LIBC: &str = "libc";
/// The owner of C functions in the program itself, but for those of the allocator.
const C: &str = "other C";
/// The allocator.
const ALLOCATOR: &str = "mimalloc";

/// Reports if this crate is one of weir's own.
pub(crate) fn is_own(crate_name: &str) -> bool {
    crate_name == "weir" || crate_name.starts_with("weir_")
}

/// Returns the crate of a function: that of the implementing type, unless only the trait is one of
/// weir's own. `object` is the program or library of the function.
pub(crate) fn owner<'a>(name: &'a str, object: &str) -> &'a str {
    if name.starts_with("core::ptr::drop_in_place<") || name.starts_with("core::ptr::drop_glue") {
        return DROP_GLUE;
    }
    let (implementing, implemented) = implementation(name);
    let type_crate = root(implementing);
    let trait_crate = implemented.and_then(root);
    match (type_crate, trait_crate) {
        (Some(found), Some(own)) if !is_own(found) && is_own(own) => own,
        // A parameter such as `T`, or a primitive type.
        (None, Some(found)) | (Some(found), _) => found,
        (None, None) if name.starts_with('<') => STD,
        (None, None) if is_allocator(name) => ALLOCATOR,
        (None, None) if object.contains(".so") => LIBC,
        (None, None) => C,
    }
}

/// Reports if this is a C function of the allocator.
pub(crate) fn is_allocator(name: &str) -> bool {
    name.starts_with("mi_") || name.starts_with("_mi_")
}

/// Returns the function in the source: without the closures and async blocks inside it, and without
/// callgrind's mark of a recursion.
pub(crate) fn source_function(name: &str) -> &str {
    let name = without_recursion(name);
    let name = name.strip_suffix("::{{vtable.shim}}").unwrap_or(name);
    name.split_once("::{{closure}}")
        .map_or(name, |(function, _)| function)
}

/// Reports if this is a closure or an async block, and no function of its own.
pub(crate) fn is_closure(name: &str) -> bool {
    source_function(name) != without_recursion(name)
}

/// Reports if this is the constructor of a tuple struct or a variant, which has no code.
pub(crate) fn is_constructor(name: &str) -> bool {
    let last = name.rsplit("::").next().unwrap_or(name);
    last.starts_with(|first: char| first.is_ascii_uppercase())
}

/// Removes the `'2` of a function that is called in itself.
pub(crate) fn without_recursion(name: &str) -> &str {
    match name.rsplit_once('\'') {
        Some((function, depth)) if depth.bytes().all(|byte| byte.is_ascii_digit()) => function,
        _ => name,
    }
}

/// Splits `<Type as Trait>::function` into the type and the trait; any other name is the type's.
fn implementation(name: &str) -> (&str, Option<&str>) {
    let Some(rest) = name.strip_prefix('<') else {
        return (name, None);
    };
    let (mut depth, mut before) = (0_usize, ' ');
    for (at, letter) in rest.char_indices() {
        match letter {
            '<' | '(' | '[' => depth += 1,
            // The arrow of a function's type closes no bracket.
            '>' if before == '-' => {}
            '>' if depth == 0 => return (&rest[..at], None),
            '>' | ')' | ']' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 && rest[at..].starts_with(" as ") => {
                return (&rest[..at], Some(&rest[at + 4..]));
            }
            _ => {}
        }
        before = letter;
    }
    (rest, None)
}

/// Returns the crate that a path of a type or function begins with.
fn root(path: &str) -> Option<&str> {
    let mut path = path;
    while let Some(rest) = ["<", "&", "[", "(", "mut ", "const ", "*", "dyn "]
        .into_iter()
        .find_map(|mark| path.strip_prefix(mark))
    {
        path = rest;
    }
    let end = path.find(|letter: char| !letter.is_alphanumeric() && letter != '_')?;
    let (first, rest) = path.split_at(end);
    if !rest.starts_with("::") {
        return None;
    }
    Some(match first {
        "std" | "core" | "alloc" | "__rustc" | "std_detect" => STD,
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_belongs_to_the_crate_of_its_type() {
        let owner = |name| owner(name, "/bin/weir");
        assert_eq!(owner("weir_front::modern::read_request"), "weir_front");
        assert_eq!(
            owner("<weir_front::body::ResponseBody as http_body::Body>::size_hint"),
            "weir_front"
        );
        assert_eq!(
            owner("hyper::proto::h1::conn::Conn<I,B,T>::poll_read_head"),
            "hyper"
        );
        assert_eq!(
            owner("<&weir_core::names::ToolName as core::fmt::Debug>::fmt"),
            "weir_core"
        );
        assert_eq!(
            owner("weir_core::names::<impl core::fmt::Display for alloc::string::String>::fmt"),
            "weir_core"
        );
    }

    #[test]
    fn a_trait_of_weirs_own_decides_for_a_foreign_type() {
        let owner = |name| owner(name, "/bin/weir");
        assert_eq!(
            owner("<F as weir_core::port::Clock>::now::{{closure}}"),
            "weir_core"
        );
        assert_eq!(
            owner("<alloc::sync::Arc<dyn Fn(u8) -> u8> as weir_core::port::Clock>::now"),
            "weir_core"
        );
        assert_eq!(
            owner("<core::option::Option<T> as core::ops::try_trait::Try>::branch"),
            STD
        );
    }

    #[test]
    fn functions_of_other_languages_have_owners_too() {
        assert_eq!(owner("<u16>::_fmt", "/bin/weir"), STD);
        assert_eq!(owner("__rustc::__rust_alloc", "/bin/weir"), STD);
        assert_eq!(owner("_mi_malloc_generic", "/bin/weir"), ALLOCATOR);
        assert_eq!(owner("memcpy", "/lib/libc.so.6"), LIBC);
        assert_eq!(owner("aes_encrypt", "/bin/weir"), C);
        assert_eq!(
            owner(
                "core::ptr::drop_in_place<weir_core::call::Call>",
                "/bin/weir"
            ),
            DROP_GLUE
        );
    }

    #[test]
    fn closures_are_part_of_their_function() {
        assert_eq!(
            source_function("weir_a::serve::{{closure}}::{{closure}}"),
            "weir_a::serve"
        );
        assert_eq!(source_function("weir_a::walk'2"), "weir_a::walk");
        assert_eq!(
            source_function("<weir_a::A<'a> as weir_a::B>::f"),
            "<weir_a::A<'a> as weir_a::B>::f"
        );
        assert!(is_closure("weir_a::serve::{{closure}}'2"));
        assert!(!is_closure("weir_a::walk'2"));
    }

    #[test]
    fn constructors_are_no_functions() {
        assert!(is_constructor("weir_wire::method::MethodName::Known"));
        assert!(!is_constructor("<weir_a::A as weir_b::B>::call"));
    }
}
