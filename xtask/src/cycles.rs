//! The import cycles of the workspace: files that need each other can only be read together.
//!
//! An import is a `use`, or a path in the code, that leads to another file of the same package;
//! a re-export is followed to the file of its definition, and is an import only of a file that uses
//! the name, too. Tests do not count.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "syn's enums may grow, and most of their variants lead to no file"
)]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use syn::visit::{self, Visit};

use crate::run::root;

/// The folders of packages whose files count.
const FOLDERS: [&str; 3] = ["crates", "benches", "xtask"];

/// Options of the command.
#[derive(Args)]
pub(crate) struct CyclesOptions {
    /// Print every import inside a cycle, with the names that it takes
    #[arg(long)]
    imports: bool,
    /// Look at one package alone, by its folder's name
    #[arg(long)]
    package: Option<String>,
}

/// A file by its number in [`Imports::files`].
type FileNumber = usize;

/// The imports among the files of a package.
#[derive(Default)]
struct Imports {
    files: Vec<PathBuf>,
    /// The names that one file takes from another one.
    names: BTreeMap<FileNumber, BTreeMap<FileNumber, BTreeSet<String>>>,
}

/// A module of a package.
#[derive(Default)]
struct Module {
    file: FileNumber,
    /// Names that this module declares under another path, by name.
    imported: HashMap<String, Vec<String>>,
    /// Modules all of whose names stand in this one.
    globs: Vec<Vec<String>>,
    defined: BTreeSet<String>,
}

type Modules = BTreeMap<Vec<String>, Module>;

/// Prints the cycles.
pub(crate) fn run(options: &CyclesOptions) -> anyhow::Result<()> {
    for package in packages()? {
        let name = package.file_name().unwrap_or_default().to_string_lossy();
        if options
            .package
            .as_ref()
            .is_some_and(|wanted| **wanted != *name)
        {
            continue;
        }
        let imports = read_package(&package)?;
        let cycles = imports.cycles();
        let within: usize = cycles.iter().map(Vec::len).sum();
        println!(
            "{name}: {within} of {} files in cycles",
            imports.files.len()
        );
        for cycle in cycles {
            println!("  {} files", cycle.len());
            for file in &cycle {
                println!("    {}", imports.files[*file].display());
                if options.imports {
                    imports.print_inside(*file, &cycle);
                }
            }
        }
    }
    check()
}

/// Checks that no file stands in a cycle.
///
/// # Errors
/// Some files import each other.
pub(crate) fn check() -> anyhow::Result<()> {
    let (mut files, mut within) = (0, 0);
    for package in packages()? {
        let imports = read_package(&package)?;
        files += imports.files.len();
        within += imports.cycles().iter().map(Vec::len).sum::<usize>();
    }
    println!("imports: {within} of {files} files in cycles (none is allowed)");
    if within > 0 {
        bail!("files import each other: `cargo xtask cycles --imports` prints them");
    }
    Ok(())
}

/// The folders of all packages.
fn packages() -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in FOLDERS {
        let folder = root()?.join(folder);
        if folder.join("Cargo.toml").exists() {
            found.push(folder);
            continue;
        }
        for entry in folder.read_dir()? {
            let path = entry?.path();
            if path.join("Cargo.toml").exists() {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Reads the imports of a package.
fn read_package(package: &Path) -> anyhow::Result<Imports> {
    let source = package.join("src");
    let mut paths = Vec::new();
    find_sources(&source, &mut paths)?;
    paths.sort();
    let mut imports = Imports::default();
    let mut modules = Modules::new();
    let mut syntax = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let file = syn::parse_file(&text).with_context(|| path.display().to_string())?;
        let module = module_path(path.strip_prefix(&source)?);
        let number = imports.files.len();
        imports
            .files
            .push(path.strip_prefix(root()?).unwrap_or(&path).to_owned());
        declare(&mut modules, &module, &file.items, number);
        syntax.push((module, file));
    }
    for (number, (module, file)) in syntax.iter().enumerate() {
        let mut reader = PathReader {
            modules: &modules,
            module: module.clone(),
            found: Vec::new(),
        };
        reader.visit_file(file);
        for (other, name) in reader.found {
            if other != number {
                let names = imports.names.entry(number).or_default();
                names.entry(other).or_default().insert(name);
            }
        }
    }
    Ok(imports)
}

/// Finds the sources below `folder`, without tests.
fn find_sources(folder: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in folder.read_dir()? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default();
        if name == "tests" {
            continue;
        }
        if path.is_dir() {
            find_sources(&path, found)?;
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// The module that a file is, by its path below `src`.
fn module_path(file: &Path) -> Vec<String> {
    let mut names: Vec<String> = file
        .with_extension("")
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    if names
        .last()
        .is_some_and(|last| matches!(&**last, "lib" | "main" | "mod"))
    {
        names.pop();
    }
    names
}

/// Reports if an item is only compiled for tests.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .meta
                .require_list()
                .is_ok_and(|list| list.tokens.to_string() == "test")
    })
}

/// Adds a module, with the modules inside the same file.
fn declare(modules: &mut Modules, path: &[String], items: &[syn::Item], file: FileNumber) {
    let mut module = Module {
        file,
        ..Module::default()
    };
    for item in items.iter().filter(|item| !is_for_tests(attributes(item))) {
        match item {
            syn::Item::Use(import) => {
                read_use(
                    &import.tree,
                    &mut Vec::new(),
                    &mut |path, name| match name {
                        Some(name) => {
                            module.imported.insert(name, path);
                        }
                        None => module.globs.push(path),
                    },
                )
            }
            syn::Item::Mod(inner) => {
                if let Some((_, items)) = &inner.content {
                    let path = [path, &[inner.ident.to_string()]].concat();
                    declare(modules, &path, items, file);
                }
            }
            other => module.defined.extend(name_of(other)),
        }
    }
    modules.insert(path.to_vec(), module);
}

/// The name that an item defines.
fn name_of(item: &syn::Item) -> Option<String> {
    let name = match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Static(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        syn::Item::Macro(item) => item.ident.as_ref()?,
        _ => return None,
    };
    Some(name.to_string())
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Calls `take` for each leaf of a `use`: its path, and the name it gets; without a name for `*`.
fn read_use(
    tree: &syn::UseTree,
    before: &mut Vec<String>,
    take: &mut impl FnMut(Vec<String>, Option<String>),
) {
    let leaf = |before: &[String], name: String| match &*name {
        "self" => before.to_vec(),
        _ => [before, &[name]].concat(),
    };
    match tree {
        syn::UseTree::Path(path) => {
            before.push(path.ident.to_string());
            read_use(&path.tree, before, take);
            before.pop();
        }
        syn::UseTree::Name(name) => {
            let path = leaf(before, name.ident.to_string());
            let name = path.last().cloned();
            take(path, name);
        }
        syn::UseTree::Rename(name) => {
            take(
                leaf(before, name.ident.to_string()),
                Some(name.rename.to_string()),
            );
        }
        syn::UseTree::Glob(_) => take(before.clone(), None),
        syn::UseTree::Group(group) => {
            for tree in &group.items {
                read_use(tree, before, take);
            }
        }
    }
}

/// Finds the files that paths lead to.
struct PathReader<'a> {
    modules: &'a Modules,
    module: Vec<String>,
    found: Vec<(FileNumber, String)>,
}

impl PathReader<'_> {
    fn is_imported(&self, names: &[String]) -> bool {
        let here = self.modules.get(&self.module);
        here.is_some_and(|here| names.iter().all(|name| here.imported.contains_key(name)))
    }

    fn add(&mut self, path: &[String]) {
        if let Some((file, name)) = resolve(self.modules, &self.module, path, 0) {
            self.found.push((file, name));
        }
    }
}

/// The file that a path of `module` leads to, and the name that it takes from there; `None` for a
/// path out of the package.
fn resolve(
    modules: &Modules,
    module: &[String],
    path: &[String],
    depth: usize,
) -> Option<(FileNumber, String)> {
    if depth > 8 {
        return None;
    }
    let (first, rest) = path.split_first()?;
    let mut at = match first.as_str() {
        "crate" => Vec::new(),
        "self" => module.to_vec(),
        "super" => module.split_last()?.1.to_vec(),
        name => {
            let child = [module, &[name.to_owned()]].concat();
            if modules.contains_key(&child) {
                child
            } else {
                return follow(modules, module, name, rest, depth);
            }
        }
    };
    for (number, name) in rest.iter().enumerate() {
        if name == "super" {
            at.pop();
            continue;
        }
        let child = [&at[..], std::slice::from_ref(name)].concat();
        if modules.contains_key(&child) {
            at = child;
            continue;
        }
        return follow(modules, &at, name, &rest[number + 1..], depth)
            .or_else(|| Some((modules.get(&at)?.file, name.clone())));
    }
    let file = modules.get(&at)?.file;
    Some((file, at.last().cloned().unwrap_or_default()))
}

/// Follows a name of a module to its definition.
fn follow(
    modules: &Modules,
    module: &[String],
    name: &str,
    rest: &[String],
    depth: usize,
) -> Option<(FileNumber, String)> {
    let here = modules.get(module)?;
    if here.defined.contains(name) {
        return Some((here.file, name.to_owned()));
    }
    if let Some(path) = here.imported.get(name) {
        // A name that a path imports from another package.
        if path.len() == 1 && path[0] == name {
            return None;
        }
        return resolve(modules, module, &[path, rest].concat(), depth + 1);
    }
    here.globs.iter().find_map(|glob| {
        let inside = [&glob[..], &[name.to_owned()], rest].concat();
        let target = resolve_module(modules, module, glob)?;
        let there = modules.get(&target)?;
        let has = there.defined.contains(name) || there.imported.contains_key(name);
        has.then(|| resolve(modules, module, &inside, depth + 1))?
    })
}

/// The module that a path leads to.
fn resolve_module(modules: &Modules, module: &[String], path: &[String]) -> Option<Vec<String>> {
    let mut at = module.to_vec();
    for (number, name) in path.iter().enumerate() {
        match name.as_str() {
            "crate" if number == 0 => at.clear(),
            "self" if number == 0 => {}
            "super" => {
                at.pop();
            }
            _ => at.push(name.clone()),
        }
    }
    modules.contains_key(&at).then_some(at)
}

impl<'ast> Visit<'ast> for PathReader<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, import: &'ast syn::ItemUse) {
        // A re-export is followed where it is used.
        if !matches!(import.vis, syn::Visibility::Inherited) {
            return;
        }
        let mut paths = Vec::new();
        read_use(&import.tree, &mut Vec::new(), &mut |path, _| {
            paths.push(path)
        });
        for path in paths {
            self.add(&path);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.module.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.module.pop();
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path
            .segments
            .iter()
            .map(|part| part.ident.to_string())
            .collect();
        // A name alone is an import if a re-export brings it: a `use` of it is counted as such.
        if names.len() > 1 || self.is_imported(&names) {
            self.add(&names);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.read_tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

impl PathReader<'_> {
    /// Reads the paths among the arguments of a macro.
    fn read_tokens(&mut self, tokens: proc_macro2::TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                proc_macro2::TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.add_long(&path);
                        path.clear();
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                proc_macro2::TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
                proc_macro2::TokenTree::Group(group) => {
                    self.add_long(&path);
                    path.clear();
                    self.read_tokens(group.stream());
                }
                _ => {
                    self.add_long(&path);
                    path.clear();
                    colons = 0;
                }
            }
        }
        self.add_long(&path);
    }

    fn add_long(&mut self, path: &[String]) {
        if path.len() > 1 {
            self.add(path);
        }
    }
}

impl Imports {
    /// The cycles, each as its files, the largest first: the strongly connected components of more
    /// than one file.
    fn cycles(&self) -> Vec<Vec<FileNumber>> {
        let reached: Vec<BTreeSet<FileNumber>> = (0..self.files.len())
            .map(|file| self.reached_from(file))
            .collect();
        let mut cycles: BTreeMap<FileNumber, Vec<FileNumber>> = BTreeMap::new();
        for file in 0..self.files.len() {
            let first = reached[file]
                .iter()
                .copied()
                .find(|other| reached[*other].contains(&file));
            if let Some(first) = first {
                cycles.entry(first).or_default().push(file);
            }
        }
        let mut cycles: Vec<_> = cycles
            .into_values()
            .filter(|files| files.len() > 1)
            .collect();
        cycles.sort_by_key(|files| std::cmp::Reverse(files.len()));
        cycles
    }

    /// The files that a file needs, and that those need.
    fn reached_from(&self, file: FileNumber) -> BTreeSet<FileNumber> {
        let mut reached = BTreeSet::new();
        let mut open = vec![file];
        while let Some(next) = open.pop() {
            for other in self.names.get(&next).into_iter().flat_map(BTreeMap::keys) {
                if reached.insert(*other) {
                    open.push(*other);
                }
            }
        }
        reached
    }

    fn print_inside(&self, file: FileNumber, cycle: &[FileNumber]) {
        for (other, names) in self.names.get(&file).into_iter().flatten() {
            if cycle.contains(other) {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                println!(
                    "      -> {}: {}",
                    self.files[*other].display(),
                    names.join(", ")
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    /// Reads a package of these files.
    fn package(name: &str, files: &[(&str, &str)]) -> Imports {
        let folder = format!("weir-cycles-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        for (name, text) in files {
            let path = folder.join("src").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let imports = read_package(&folder).unwrap();
        fs::remove_dir_all(folder).unwrap();
        imports
    }

    fn names(imports: &Imports) -> Vec<Vec<String>> {
        let name = |file: &FileNumber| {
            let name = imports.files[*file].file_name().unwrap();
            name.to_string_lossy().into_owned()
        };
        let mut cycles: Vec<Vec<String>> = imports
            .cycles()
            .iter()
            .map(|cycle| cycle.iter().map(name).collect())
            .collect();
        cycles.sort();
        cycles
    }

    #[test]
    fn files_that_use_each_other_are_a_cycle() {
        let imports = package(
            "plain",
            &[
                ("lib.rs", "mod a; mod b; mod c; pub use a::A;"),
                ("a.rs", "use crate::b::B; pub struct A(B);"),
                ("b.rs", "pub struct B(Box<super::c::C>);"),
                ("c.rs", "pub struct C(crate::A);"),
                ("d.rs", "use crate::a::A; struct D(A);"),
            ],
        );
        assert_eq!(names(&imports), [["a.rs", "b.rs", "c.rs"]]);
    }

    #[test]
    fn declarations_reexports_and_tests_are_no_imports() {
        let imports = package(
            "none",
            &[
                ("lib.rs", "mod a; pub use a::A; pub struct Own;"),
                (
                    "a.rs",
                    "use crate::Own; pub struct A(Own); #[cfg(test)] mod tests { use crate::b::B; }",
                ),
                ("b.rs", "use crate::A; pub struct B(A);"),
                ("a/tests.rs", "use crate::b::B;"),
            ],
        );
        assert!(names(&imports).is_empty());
    }

    #[test]
    fn a_reexported_name_that_is_used_in_the_same_file_is_an_import() {
        let imports = package(
            "used",
            &[
                ("lib.rs", "mod a; mod b;"),
                ("a.rs", "pub use crate::b::B; pub struct A(B);"),
                ("b.rs", "pub struct B(Vec<crate::a::A>);"),
            ],
        );
        assert_eq!(names(&imports), [["a.rs", "b.rs"]]);
    }

    #[test]
    fn paths_in_code_and_in_macros_are_imports() {
        let imports = package(
            "macros",
            &[
                ("main.rs", "mod a; mod b; mod c;"),
                ("a.rs", "pub fn a() { crate::b::b(); }"),
                (
                    "b.rs",
                    "pub fn b() { println!(\"{}\", [crate::c::c()].len()); }",
                ),
                ("c.rs", "use super::a; pub fn c() { a::a() }"),
            ],
        );
        assert_eq!(names(&imports), [["a.rs", "b.rs", "c.rs"]]);
    }
}
