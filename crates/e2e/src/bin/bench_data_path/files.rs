//! Files whose content cannot be compressed and is the same in every run, and whether two folders hold the same.

use anyhow::{Context as _, Result, ensure};
use std::fs::{self, File};
use std::io::{BufWriter, Read as _, Write as _};
use std::path::Path;

/// Marsaglia's xorshift: fast, and nothing that a compressor finds a pattern in.
struct Noise(u64);

impl Noise {
    fn fill(&mut self, block: &mut [u8]) {
        for eight in block.chunks_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            let bytes = self.0.to_le_bytes();
            eight.copy_from_slice(&bytes[..eight.len()]);
        }
    }
}

/// `count` files of up to 4 KiB, a hundred in each folder.
pub fn many(place: &Path, count: usize) -> Result<()> {
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let mut block = [0; 4096];
    for number in 0..count {
        let folder = place.join(format!("{:04}", number / 100));
        if number % 100 == 0 {
            fs::create_dir_all(&folder)?;
        }
        let length = 1 + number * 37 % block.len();
        noise.fill(&mut block[..length]);
        fs::write(folder.join(format!("{number:06}")), &block[..length])?;
    }
    Ok(())
}

/// One file of so many bytes.
pub fn one(path: &Path, bytes: u64) -> Result<()> {
    let mut noise = Noise(0x2545_f491_4f6c_dd1d);
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut block = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        noise.fill(&mut block[..length]);
        file.write_all(&block[..length])?;
        left -= length as u64;
    }
    file.flush().context("the large file")
}

/// Every file of `was` is in `is`, byte by byte, and nothing else.
///
/// # Errors
/// When they differ.
pub fn same(was: &Path, is: &Path) -> Result<()> {
    let names = |folder: &Path| -> Result<Vec<_>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            names.push(entry?.file_name());
        }
        names.sort();
        Ok(names)
    };
    let all = names(was)?;
    ensure!(
        all == names(is)?,
        "{} and {} hold other names",
        was.display(),
        is.display()
    );
    for name in all {
        let (one, other) = (was.join(&name), is.join(&name));
        if one.is_dir() {
            same(&one, &other)?;
        } else {
            same_file(&one, &other).with_context(|| other.display().to_string())?;
        }
    }
    Ok(())
}

fn same_file(one: &Path, other: &Path) -> Result<()> {
    let mut files = (File::open(one)?, File::open(other)?);
    let length = files.0.metadata()?.len();
    ensure!(length == files.1.metadata()?.len(), "it has another length");
    let mut blocks = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut left = length;
    while left > 0 {
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(blocks.0.len());
        files.0.read_exact(&mut blocks.0[..part])?;
        files.1.read_exact(&mut blocks.1[..part])?;
        ensure!(blocks.0[..part] == blocks.1[..part], "it has other bytes");
        left -= part as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_with_another_byte_are_not_the_same() {
        let place = std::env::temp_dir().join(format!("holdfast-files-{}", std::process::id()));
        let (a, b) = (place.join("a"), place.join("b"));
        for folder in [&a, &b] {
            fs::create_dir_all(folder).expect("a folder");
            many(folder, 150).expect("files");
            one(&folder.join("large"), (2 << 20) + 3).expect("a file");
        }
        same(&a, &b).expect("the same");
        assert_eq!(fs::metadata(a.join("large")).expect("it").len(), (2 << 20) + 3);
        let mut large = fs::read(b.join("large")).expect("it");
        *large.last_mut().expect("a byte") ^= 1;
        fs::write(b.join("large"), large).expect("written");
        assert!(same(&a, &b).is_err());
        fs::remove_dir_all(&place).expect("removed");
    }
}
