//! Files that use each other in a circle: the strongly connected parts of the graph, after R. Tarjan (1972).

use std::collections::BTreeSet;

use crate::exceptions::Exceptions;
use crate::modules::Modules;

pub fn find(modules: &Modules) -> Exceptions {
    let mut search = CircleSearch::new(modules.uses());
    for file in 0..search.uses.len() {
        if search.order[file].is_none() {
            search.visit(file);
        }
    }
    let mut found = Exceptions::new();
    for circle in search.circles {
        for &file in &circle {
            found.insert(format!("circle {}", modules.path(file)), circle.len());
        }
    }
    found
}

struct CircleSearch<'a> {
    uses: &'a [BTreeSet<usize>],
    /// When a file was first seen.
    order: Vec<Option<usize>>,
    /// The earliest file that it reaches among those on the stack.
    low: Vec<usize>,
    stack: Vec<usize>,
    seen: usize,
    circles: Vec<Vec<usize>>,
}

impl<'a> CircleSearch<'a> {
    fn new(uses: &'a [BTreeSet<usize>]) -> CircleSearch<'a> {
        let count = uses.len();
        CircleSearch {
            uses,
            order: vec![None; count],
            low: vec![0; count],
            stack: Vec::new(),
            seen: 0,
            circles: Vec::new(),
        }
    }

    fn visit(&mut self, file: usize) {
        self.order[file] = Some(self.seen);
        self.low[file] = self.seen;
        self.seen += 1;
        self.stack.push(file);
        for &used in &self.uses[file] {
            match self.order[used] {
                None => {
                    self.visit(used);
                    self.low[file] = self.low[file].min(self.low[used]);
                }
                Some(order) if self.stack.contains(&used) => self.low[file] = self.low[file].min(order),
                Some(_) => {}
            }
        }
        if self.order[file] == Some(self.low[file]) {
            let from = self.stack.iter().position(|&other| other == file).unwrap_or(0);
            let circle = self.stack.split_off(from);
            if circle.len() > 1 {
                self.circles.push(circle);
            }
        }
    }
}
