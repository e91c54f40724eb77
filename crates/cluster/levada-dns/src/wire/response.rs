//! A response as it is written: header, question, records with compressed names, EDNS.

use super::{Code, Query, kind, name, query::HEADER};

/// The owner of a record.
#[derive(Clone, Copy, Debug)]
pub enum Owner<'n> {
    /// The name that was asked for.
    Asked,
    /// Another name.
    Name(&'n [u8]),
}

/// A section of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Records that answer the question.
    Answer = 0,
    /// Records about the zone.
    Authority = 1,
    /// Records that a client would ask for next.
    Additional = 2,
}

/// There is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A response in a buffer. Sections are written in their order.
pub struct Response<'b> {
    buffer: &'b mut [u8],
    length: usize,
    /// Records end here: the rest of the buffer is for the record of EDNS.
    limit: usize,
    counts: [u16; 3],
    /// Where names begin that later ones may point to.
    names: [u16; POINTERS],
    known: usize,
    after_question: usize,
    first_name: usize,
}

/// As many names are kept to be pointed to.
const POINTERS: usize = 24;
/// Offsets that a pointer can have.
const FAR: usize = 0x4000;
/// A pointer to the name of the question.
const ASKED: [u8; 2] = [0xc0, HEADER as u8];
const AUTHORITATIVE: u8 = 0x04;
const TRUNCATED: u8 = 0x02;

impl<'b> Response<'b> {
    /// A response to `query`, of at most as many bytes as the buffer has. The last `reserved` bytes are for the record
    /// of EDNS.
    ///
    /// # Errors
    /// When the question does not fit.
    pub fn to(query: &Query<'_>, buffer: &'b mut [u8], reserved: usize) -> Result<Self, Full> {
        let length = HEADER + query.question.len();
        let limit = buffer.len().checked_sub(reserved).ok_or(Full)?;
        buffer[..limit].get_mut(HEADER..length).ok_or(Full)?.copy_from_slice(query.question);
        let mut response = Self {
            buffer,
            length,
            limit,
            counts: [0; 3],
            names: [0; POINTERS],
            known: 0,
            after_question: length,
            first_name: 0,
        };
        response.header(query.id, query.flags, 1);
        let mut at = HEADER;
        for suffix in name::suffixes(query.name()).take_while(|suffix| suffix.len() > 1) {
            response.know(at);
            at += 1 + usize::from(suffix[0]);
        }
        response.first_name = response.known;
        Ok(response)
    }

    /// The header of a response to a message that is no query: it has nothing else.
    pub fn to_malformed(message: &[u8], code: Code, buffer: &mut [u8]) -> Option<usize> {
        let head = message.first_chunk::<4>()?;
        let out = buffer.get_mut(..HEADER)?;
        out.fill(0);
        out[..2].copy_from_slice(&head[..2]);
        out[2] = 0x80 | (head[2] & 0x79);
        out[3] = code as u8 & 0x0f;
        Some(HEADER)
    }

    fn header(&mut self, id: u16, flags: u16, questions: u16) {
        let out = &mut self.buffer[..HEADER];
        out.fill(0);
        out[..2].copy_from_slice(&id.to_be_bytes());
        // RD and CD are copied.
        let flags = 0x8000 | (flags & 0x0110);
        out[2..4].copy_from_slice(&flags.to_be_bytes());
        out[4..6].copy_from_slice(&questions.to_be_bytes());
    }

    /// Says that the zone of the answer is this server's.
    pub fn authoritative(&mut self, is: bool) {
        match is {
            true => self.buffer[2] |= AUTHORITATIVE,
            false => self.buffer[2] &= !AUTHORITATIVE,
        }
    }

    /// Says that records are missing, and removes all that are there.
    pub fn truncate(&mut self) {
        self.buffer[2] |= TRUNCATED;
        self.length = self.after_question;
        self.counts = [0; 3];
        self.known = self.first_name;
    }

    /// Whether records are missing.
    pub fn is_truncated(&self) -> bool {
        self.buffer[2] & TRUNCATED != 0
    }

    /// Sets the lower four bits of the code.
    pub fn code(&mut self, code: Code) {
        self.buffer[3] = (self.buffer[3] & 0xf0) | (code as u16 as u8 & 0x0f);
    }

    /// Adds a record. When there is no room, nothing is added.
    ///
    /// # Errors
    /// When there is no room for it.
    pub fn record(
        &mut self,
        section: Section,
        owner: Owner<'_>,
        (of, ttl): (u16, u32),
        data: &[u8],
    ) -> Result<(), Full> {
        let (length, known) = (self.length, self.known);
        let written = self.write_record(owner, of, ttl, data);
        match written {
            Ok(()) => self.counts[section as usize] += 1,
            Err(Full) => (self.length, self.known) = (length, known),
        }
        written
    }

    fn write_record(
        &mut self,
        owner: Owner<'_>,
        of: u16,
        ttl: u32,
        data: &[u8],
    ) -> Result<(), Full> {
        match owner {
            Owner::Asked => self.put(&ASKED)?,
            Owner::Name(name) => self.name(name)?,
        }
        let mut head = [0; 10];
        head[..2].copy_from_slice(&of.to_be_bytes());
        head[3] = 1;
        head[4..8].copy_from_slice(&ttl.to_be_bytes());
        head[8..].copy_from_slice(&(data.len() as u16).to_be_bytes());
        self.put(&head)?;
        let begin = self.length;
        match of {
            kind::NS | kind::CNAME | kind::PTR => self.name(data)?,
            kind::MX => {
                let (preference, host) = data.split_at(data.len().min(2));
                self.put(preference)?;
                self.name(host)?;
            }
            kind::SOA => {
                let (server, rest) = data.split_at(name::length(data).unwrap_or(0));
                let (mailbox, numbers) = rest.split_at(name::length(rest).unwrap_or(0));
                self.name(server)?;
                self.name(mailbox)?;
                self.put(numbers)?;
            }
            _ => return self.put(data),
        }
        let length = (self.length - begin) as u16;
        self.buffer[begin - 2..begin].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    /// Writes a name, the end of which may be a pointer to one that is there (RFC 1035 Sec. 4.1.4).
    fn name(&mut self, name: &[u8]) -> Result<(), Full> {
        let mut rest = name;
        while rest.len() > 1 {
            let there =
                self.names[..self.known].iter().find(|at| self.is_at(usize::from(**at), rest));
            if let Some(there) = there.copied() {
                return self.put(&(0xc000 | there).to_be_bytes());
            }
            let label = 1 + usize::from(rest[0]);
            let at = self.length;
            self.put(&rest[..label])?;
            if at < FAR {
                self.know(at);
            }
            rest = &rest[label..];
        }
        self.put(&[0])
    }

    fn know(&mut self, at: usize) {
        if self.known < POINTERS {
            self.names[self.known] = at as u16;
            self.known += 1;
        }
    }

    /// Whether the name that begins at `at` is `name`.
    fn is_at(&self, mut at: usize, mut name: &[u8]) -> bool {
        loop {
            // The end of a name that is being written is not there yet.
            let written = &self.buffer[..self.length];
            let Some(length) = written.get(at).copied() else { return false };
            if length >= 0xc0 {
                // Pointers lead backwards only: this ends.
                let Some(low) = written.get(at + 1).copied() else { return false };
                at = usize::from(u16::from_be_bytes([length & 0x3f, low]));
                continue;
            }
            let end = 1 + usize::from(length);
            let (here, there) = (written.get(at..at + end), name.get(..end));
            if !here.zip(there).is_some_and(|(here, there)| here.eq_ignore_ascii_case(there)) {
                return false;
            }
            if length == 0 {
                return true;
            }
            (at, name) = (at + end, &name[end..]);
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Full> {
        let end = self.length + bytes.len();
        self.buffer[..self.limit].get_mut(self.length..end).ok_or(Full)?.copy_from_slice(bytes);
        self.length = end;
        Ok(())
    }

    /// Ends the response with the record of EDNS, which `opt` is without its length, if the query has one. Returns the
    /// number of bytes.
    pub fn end(mut self, opt: Option<&[u8]>) -> usize {
        self.limit = self.buffer.len();
        if let Some(opt) = opt
            && self.put(opt).is_ok()
        {
            self.counts[Section::Additional as usize] += 1;
        }
        for (at, count) in self.counts.iter().enumerate() {
            let at = 6 + 2 * at;
            self.buffer[at..at + 2].copy_from_slice(&count.to_be_bytes());
        }
        self.length
    }
}
