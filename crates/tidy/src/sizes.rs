//! How long files and functions are, and where `unsafe` stands.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::exceptions::Exceptions;
use crate::source::SourceFile;

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;

pub fn find(sources: &[SourceFile]) -> Exceptions {
    let mut found = Exceptions::new();
    for source in sources {
        let lines = source.text.lines().count();
        if lines > FILE_LINES_MAX {
            found.insert(format!("file {}", source.path), lines);
        }
        let mut counts = SizeCounts { path: &source.path, unsafe_places: 0, found: &mut found };
        counts.visit_file(&source.file);
        if counts.unsafe_places > 0 {
            let places = counts.unsafe_places;
            found.insert(format!("unsafe {}", source.path), places);
        }
    }
    found
}

struct SizeCounts<'a> {
    path: &'a str,
    unsafe_places: usize,
    found: &'a mut Exceptions,
}

impl SizeCounts<'_> {
    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let lines = block.span().end().line + 1 - signature.span().start().line;
        if lines > FUNCTION_LINES_MAX {
            let longest = self.found.entry(format!("function {} {}", self.path, signature.ident)).or_default();
            *longest = lines.max(*longest);
        }
        self.unsafe_places += usize::from(matches!(signature.safety, syn::Safety::Unsafe(_)));
    }
}

impl<'ast> Visit<'ast> for SizeCounts<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.unsafe_places += 1;
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.unsafe_places += usize::from(item.unsafety.is_some());
        visit::visit_item_impl(self, item);
    }
}
