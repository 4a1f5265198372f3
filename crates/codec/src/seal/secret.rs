//! Bytes that nobody may see.

use zeroize::Zeroize;

/// SecretBytes bytes. They are wiped when it is dropped; there is no way to print, copy or send it by mistake.
pub struct SecretBytes<const N: usize>(Box<[u8; N]>);

impl<const N: usize> SecretBytes<N> {
    /// Of what `fill` writes over zeros.
    pub fn make(fill: impl FnOnce(&mut [u8; N])) -> SecretBytes<N> {
        let mut secret = SecretBytes(Box::new([0; N]));
        fill(&mut secret.0);
        secret
    }

    /// Of those bytes, which are wiped; `None` if they are not so many.
    pub fn take(bytes: &mut [u8]) -> Option<SecretBytes<N>> {
        let secret = (bytes.len() == N).then(|| SecretBytes::make(|secret| secret.copy_from_slice(bytes)));
        bytes.zeroize();
        secret
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8; N] {
        &self.0
    }

    /// The same, to be changed.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8; N] {
        &mut self.0
    }
}

impl<const N: usize> Drop for SecretBytes<N> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}
