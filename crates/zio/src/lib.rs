//! zio
