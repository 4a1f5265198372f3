//! zil
