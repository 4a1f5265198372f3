//! What advice comes to: whether to do it, and why.

/// See the top of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdviceVerdict {
    /// Whether to do it.
    pub is_advised: bool,
    /// In words, whole lines.
    pub words: String,
}

impl AdviceVerdict {
    /// Do it.
    pub fn yes(words: String) -> AdviceVerdict {
        AdviceVerdict { is_advised: true, words }
    }

    /// Do not, or there is nothing to do.
    pub fn no(words: String) -> AdviceVerdict {
        AdviceVerdict { is_advised: false, words }
    }
}
