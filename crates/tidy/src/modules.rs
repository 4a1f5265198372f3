//! Which file of a crate uses which: paths and imports, followed to the file that defines what they name.
//!
//! A file that only hands a name on (`pub use`) is passed through, and does not use what it hands on. Calls of methods
//! are not followed: a method stands in the file of its type, or is listed as foreign to it.

use std::collections::{BTreeSet, HashMap};

use syn::visit::{self, Visit};
use syn::{Item, UseTree, Visibility};

use crate::exceptions::Exceptions;
use crate::source::{SourceFile, is_of_tests};

/// How many names that stand for other names are followed.
const ALIASES_MAX: usize = 16;

enum Name {
    Item,
    Module(usize),
    Alias(Vec<String>),
}

/// A module: a file, or part of one.
struct Module<'a> {
    file: usize,
    items: &'a [Item],
    parent: Option<usize>,
    names: HashMap<String, Name>,
    /// What it takes all names from.
    globs: Vec<Vec<String>>,
}

/// The modules of all crates.
pub struct Modules<'a> {
    sources: &'a [SourceFile],
    modules: Vec<Module<'a>>,
    /// The module of a crate's face.
    roots: HashMap<&'a str, usize>,
    /// For each file, the others that it uses.
    uses: Vec<BTreeSet<usize>>,
    foreign: Exceptions,
}

impl<'a> Modules<'a> {
    pub fn of(sources: &'a [SourceFile]) -> Modules<'a> {
        let empty = vec![BTreeSet::new(); sources.len()];
        let mut all =
            Modules { sources, modules: Vec::new(), roots: HashMap::new(), uses: empty, foreign: Exceptions::new() };
        for face in ["lib.rs", "main.rs"] {
            for (file, source) in sources.iter().enumerate() {
                if source.place() == Some(face) && !all.roots.contains_key(&*source.krate) {
                    let root = all.add(file, None, "", &source.file.items);
                    all.roots.insert(&source.krate, root);
                }
            }
        }
        for at in 0..all.modules.len() {
            all.follow(at);
        }
        all
    }

    /// The files that each file uses.
    pub fn uses(&self) -> &[BTreeSet<usize>] {
        &self.uses
    }

    pub fn path(&self, file: usize) -> &str {
        &self.sources[file].path
    }

    /// Methods outside of their type's file that use its private fields.
    pub fn foreign_impls(&self) -> Exceptions {
        self.foreign.clone()
    }

    /// Adds a module whose files lie below `folder` (empty, or ends with `/`).
    fn add(&mut self, file: usize, parent: Option<usize>, folder: &str, items: &'a [Item]) -> usize {
        let at = self.modules.len();
        self.modules.push(Module { file, items, parent, names: HashMap::new(), globs: Vec::new() });
        for item in items {
            if let Item::Mod(item) = item {
                if is_of_tests(&item.attrs) {
                    continue;
                }
                let name = item.ident.to_string();
                let inner = format!("{folder}{name}/");
                let child = match &item.content {
                    Some((_, items)) => Some(self.add(file, Some(at), &inner, items)),
                    None => self.file_of(file, folder, &name).map(|child| {
                        let items = &self.sources[child].file.items;
                        self.add(child, Some(at), &inner, items)
                    }),
                };
                if let Some(child) = child {
                    self.modules[at].names.insert(name, Name::Module(child));
                }
            } else if let Item::Use(item) = item {
                if !is_of_tests(&item.attrs) {
                    self.import(at, &item.tree, &mut Vec::new());
                }
            } else if let Some(name) = name_of(item) {
                // a function may be called as a module is
                self.modules[at].names.entry(name).or_insert(Name::Item);
            }
        }
        at
    }

    fn file_of(&self, near: usize, folder: &str, name: &str) -> Option<usize> {
        let krate = &self.sources[near].krate;
        let places = [format!("{krate}/src/{folder}{name}.rs"), format!("{krate}/src/{folder}{name}/mod.rs")];
        self.sources.iter().position(|source| places.contains(&source.path))
    }

    /// Notes the names that an import gives.
    fn import(&mut self, at: usize, tree: &UseTree, before: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.import(at, &path.tree, before);
                before.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(at, tree, before)),
            UseTree::Glob(_) => self.modules[at].globs.push(before.clone()),
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                self.alias(at, name.clone(), before, name);
            }
            UseTree::Rename(rename) => {
                self.alias(at, rename.rename.to_string(), before, rename.ident.to_string());
            }
        }
    }

    fn alias(&mut self, at: usize, name: String, before: &[String], last: String) {
        let mut path = before.to_vec();
        // `use super::locks::{self}`
        let name = if last == "self" { before.last().cloned().unwrap_or(name) } else { name };
        if last != "self" {
            path.push(last);
        }
        self.modules[at].names.entry(name).or_insert(Name::Alias(path));
    }

    /// The file that defines what `path` names in module `at`; None outside of the crate.
    fn resolve(&self, at: usize, path: &[String], aliases: usize) -> Option<usize> {
        if aliases > ALIASES_MAX {
            return None;
        }
        let mut module = at;
        for (index, part) in path.iter().enumerate() {
            let rest = &path[index + 1..];
            match part.as_str() {
                "crate" => module = *self.roots.get(&*self.sources[self.modules[at].file].krate)?,
                "self" => {}
                "super" => module = self.modules[module].parent?,
                _ => match self.modules[module].names.get(part) {
                    Some(Name::Module(child)) => module = *child,
                    Some(Name::Item) => return Some(self.modules[module].file),
                    Some(Name::Alias(target)) => {
                        // a name that a crate and an import share: `use base::Error` in a module without `base`
                        if target.first() == Some(part) && target.len() == 1 {
                            return None;
                        }
                        let whole: Vec<String> = target.iter().chain(rest).cloned().collect();
                        return self.resolve(module, &whole, aliases + 1);
                    }
                    None => {
                        let globs = self.modules[module].globs.iter().filter(|glob| glob.first() != Some(part));
                        let mut elsewhere = globs.filter_map(|glob| {
                            let whole: Vec<String> = glob.iter().chain(&path[index..]).cloned().collect();
                            self.resolve(module, &whole, aliases + 1)
                        });
                        // what a macro defines is not seen
                        return elsewhere.next().or((index > 0).then_some(self.modules[module].file));
                    }
                },
            }
        }
        Some(self.modules[module].file)
    }

    /// Notes what a module uses.
    fn follow(&mut self, at: usize) {
        let file = self.modules[at].file;
        let mut paths = Paths::default();
        // what stands in a module inside of this one is looked up from there
        let items = self.modules[at].items.iter().filter(|item| !matches!(item, Item::Mod(_)));
        items.for_each(|item| paths.visit_item(item));
        for path in &paths.paths {
            let first = path.first().map(String::as_str);
            let is_local = matches!(first, Some("crate" | "super" | "self"))
                || first.is_some_and(|first| matches!(self.modules[at].names.get(first), Some(Name::Module(_))));
            if let Some(used) = self.resolve(at, path, 0)
                && is_local
                && used != file
            {
                self.uses[file].insert(used);
            }
        }
        for (path, block) in &paths.impls {
            let Some(used) = self.resolve(at, path, 0).filter(|&used| used != file) else { continue };
            let name = path.last().cloned().unwrap_or_default();
            let private = private_fields(&self.sources[used].file, &name);
            let methods =
                block.items.iter().filter(|item| Fields::of(item).iter().any(|field| private.contains(field)));
            let methods = methods.count();
            if methods > 0 {
                *self.foreign.entry(format!("foreign {} {name}", self.sources[file].path)).or_default() += methods;
            }
            self.uses[file].insert(used);
        }
    }
}

/// The name that an item defines.
fn name_of(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

/// The fields of a type that other crates do not see.
fn private_fields(file: &syn::File, name: &str) -> BTreeSet<String> {
    let fields = file.items.iter().filter_map(|item| match item {
        Item::Struct(item) if item.ident == name => Some(&item.fields),
        _ => None,
    });
    let private = fields.flatten().filter(|field| !matches!(field.vis, Visibility::Public(_)));
    private.filter_map(|field| field.ident.as_ref().map(ToString::to_string)).collect()
}

/// The fields of `self` that a method names.
#[derive(Default)]
struct Fields(BTreeSet<String>);

impl Fields {
    fn of(item: &syn::ImplItem) -> BTreeSet<String> {
        let mut fields = Fields::default();
        fields.visit_impl_item(item);
        fields.0
    }
}

impl<'ast> Visit<'ast> for Fields {
    fn visit_expr_field(&mut self, field: &'ast syn::ExprField) {
        if let (syn::Expr::Path(base), syn::Member::Named(name)) = (&*field.base, &field.member)
            && base.path.is_ident("self")
        {
            self.0.insert(name.to_string());
        }
        visit::visit_expr_field(self, field);
    }
}

/// The paths in a file, and the types that it gives methods.
#[derive(Default)]
struct Paths<'a> {
    paths: Vec<Vec<String>>,
    impls: Vec<(Vec<String>, &'a syn::ItemImpl)>,
}

impl Paths<'_> {
    fn import(&mut self, tree: &UseTree, before: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.import(&path.tree, before);
                before.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, before)),
            UseTree::Glob(_) => self.paths.push(before.clone()),
            UseTree::Name(syn::UseName { ident, .. }) | UseTree::Rename(syn::UseRename { ident, .. }) => {
                let last = (ident != "self").then(|| ident.to_string());
                self.paths.push(before.iter().cloned().chain(last).collect());
            }
        }
    }
}

fn parts(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

impl<'ast> Visit<'ast> for Paths<'ast> {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes: &[syn::Attribute] = match item {
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Mod(item) => &item.attrs,
            Item::Struct(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            _ => &[],
        };
        if !is_of_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_of_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if matches!(item.vis, Visibility::Inherited) {
            self.import(&item.tree, &mut Vec::new());
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let (None, syn::Type::Path(path)) = (&item.trait_, &*item.self_ty) {
            self.impls.push((parts(&path.path), item));
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            self.paths.push(parts(path));
        }
        visit::visit_path(self, path);
    }
}
