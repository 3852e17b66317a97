package main

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The types are the JSON objects of SPDX 2.3, with the fields that we use. https://spdx.github.io/spdx-spec/v2.3/
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		License       string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		Creation      spdxCreation       `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Files         []spdxFile         `json:"files"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		Name       string         `json:"name"`
		ID         string         `json:"SPDXID"`
		Version    string         `json:"versionInfo,omitempty"`
		Download   string         `json:"downloadLocation"`
		Analyzed   bool           `json:"filesAnalyzed"`
		License    string         `json:"licenseDeclared"`
		Concluded  string         `json:"licenseConcluded"`
		Copyright  string         `json:"copyrightText"`
		Purpose    string         `json:"primaryPackagePurpose,omitempty"`
		SourceInfo string         `json:"sourceInfo,omitempty"`
		References []spdxExternal `json:"externalRefs,omitempty"`
	}
	spdxExternal struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxFile struct {
		Name      string         `json:"fileName"`
		ID        string         `json:"SPDXID"`
		Types     []string       `json:"fileTypes"`
		Checksums []spdxChecksum `json:"checksums"`
		Concluded string         `json:"licenseConcluded"`
		Copyright string         `json:"copyrightText"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxRelationship struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

const (
	spdxNone = "NOASSERTION"
	project  = "https://github.com/coracle-dev/coracle"
)

// sbom collects the bill of materials of a release: the released executables, the programs in each, and their modules
// and packages. Each is in it once, even if several parts contain it.
type sbom struct {
	doc   spdxDocument
	known map[string]bool // SPDX identifiers
}

// release is the release that a bill of materials describes.
type release struct {
	dir     string // with the executables for all architectures
	version string
	commit  string
	created string // RFC 3339
	pause   string // version
}

// writeSBOM writes the bill of materials of a release. builds is a comma-separated list of ARCH=DEBIAN_ROOT; the build
// for ARCH is in root/build/ARCH.
func writeSBOM(root string, r release, builds, out string) error {
	s := newSBOM(r)
	for build := range strings.SplitSeq(builds, ",") {
		arch, debian, ok := strings.Cut(build, "=")
		if !ok {
			return fmt.Errorf("%q is not ARCH=DEBIAN_ROOT", build)
		}
		asset := "coracle-linux-" + arch
		file, err := s.file(filepath.Join(r.dir, asset), asset)
		if err != nil {
			return err
		}
		s.relate("SPDXRef-Package-coracle", "CONTAINS", file)
		image, err := s.file(filepath.Join(r.dir, "coracle-image-linux-"+arch+".tar"), "coracle-image-linux-"+arch+".tar")
		if err != nil {
			return err
		}
		s.relate("SPDXRef-Package-coracle", "CONTAINS", image)
		if err := s.programs(filepath.Join(root, "build", arch), file, arch, r.version); err != nil {
			return err
		}
		if err := s.debian(filepath.Join(root, "build", arch, "payload"), debian, file, arch); err != nil {
			return err
		}
		if err := s.page(root, file); err != nil {
			return err
		}
		s.relate(file, "CONTAINS", s.pack("pause", r.pause, "pkg:generic/pause@"+r.pause))
		if err := s.image(image, file); err != nil {
			return err
		}
	}
	data, err := s.marshal()
	if err != nil {
		return err
	}
	return os.WriteFile(out, data, 0o644)
}

// newSBOM is a document about coracle without content.
func newSBOM(r release) *sbom {
	s := &sbom{known: map[string]bool{}, doc: spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT",
		Name:      "coracle-" + r.version,
		Namespace: project + "/sbom/" + r.version + "/" + r.commit,
		Creation:  spdxCreation{r.created, []string{"Organization: coracle", "Tool: coracle-bundle-" + r.version}},
	}}
	s.add(spdxPackage{
		Name: "coracle", ID: "SPDXRef-Package-coracle", Version: r.version, License: "Apache-2.0", Purpose: "APPLICATION",
		Download: "git+" + project + "@" + r.commit,
		References: []spdxExternal{
			{"PACKAGE-MANAGER", "purl", "pkg:github/coracle-dev/coracle@" + purlVersion(r.version)},
		},
	})
	s.relate("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Package-coracle")
	return s
}

// add adds a package, and sets the fields that all packages have in common.
func (s *sbom) add(p spdxPackage) {
	if s.known[p.ID] {
		return
	}
	s.known[p.ID] = true
	p.Concluded, p.Copyright = spdxNone, spdxNone
	if p.Download == "" {
		p.Download = spdxNone
	}
	if p.License == "" {
		p.License = spdxNone
	}
	s.doc.Packages = append(s.doc.Packages, p)
}

// pack adds a package with a name, a version and an address, and returns its identifier.
func (s *sbom) pack(name, version, purl string) string {
	id := spdxID("Package", name, version)
	s.add(spdxPackage{Name: name, ID: id, Version: version, References: []spdxExternal{{"PACKAGE-MANAGER", "purl", purl}}})
	return id
}

// file adds a file with its checksums and returns its identifier.
func (s *sbom) file(path, name string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	id := spdxID("File", name)
	weak, strong := sha1.Sum(data), sha256.Sum256(data)
	s.doc.Files = append(s.doc.Files, spdxFile{
		Name: "./" + name, ID: id, Types: []string{"BINARY"}, Concluded: spdxNone, Copyright: spdxNone,
		Checksums: []spdxChecksum{{"SHA1", hex.EncodeToString(weak[:])}, {"SHA256", hex.EncodeToString(strong[:])}},
	})
	return id, nil
}

func (s *sbom) relate(from, how, to string) {
	r := spdxRelationship{from, how, to}
	if !slices.Contains(s.doc.Relationships, r) {
		s.doc.Relationships = append(s.doc.Relationships, r)
	}
}

func (s *sbom) marshal() ([]byte, error) {
	slices.SortFunc(s.doc.Packages[1:], func(a, b spdxPackage) int { return strings.Compare(a.ID, b.ID) })
	data, err := json.MarshalIndent(s.doc, "", " ")
	return append(data, '\n'), err
}

// spdxID makes an identifier, which may have letters, digits, dots and hyphens only.
func spdxID(kind string, parts ...string) string {
	id := "SPDXRef-" + kind
	for _, p := range parts {
		id += "-" + strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
				return r
			}
			return '-'
		}, p)
	}
	return id
}

// purlVersion writes a version for package URLs, with %2B for a plus sign.
func purlVersion(version string) string {
	return strings.NewReplacer("%", "%25", "+", "%2B", ":", "%3A").Replace(version)
}
