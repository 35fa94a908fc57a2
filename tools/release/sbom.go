package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"time"
)

// The parts of an SPDX 2.3 document that are used here.
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		DataLicence   string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		Creation      spdxCreation       `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID               string          `json:"SPDXID"`
		Name             string          `json:"name"`
		Version          string          `json:"versionInfo"`
		Download         string          `json:"downloadLocation"`
		FilesAnalyzed    bool            `json:"filesAnalyzed"`
		LicenceConcluded string          `json:"licenseConcluded"`
		LicenceDeclared  string          `json:"licenseDeclared"`
		Copyright        string          `json:"copyrightText"`
		Purpose          string          `json:"primaryPackagePurpose,omitempty"`
		SourceInfo       string          `json:"sourceInfo,omitempty"`
		Checksums        []spdxChecksum  `json:"checksums,omitempty"`
		References       []spdxReference `json:"externalRefs,omitempty"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxReference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

const noAssertion = "NOASSERTION"

var notInSPDXIDs = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// writeSBOM writes what is in the program of a platform, as SPDX.
func (r *release) writeSBOM(p platform, modules []module) error {
	program, err := os.ReadFile(r.program(p))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(program)
	title := fmt.Sprintf("%s_%s_%s", name, r.version, p)
	document := spdxDocument{
		Version: "SPDX-2.3", DataLicence: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: title,
		Namespace: "urn:" + name + ":sbom:" + title + ":" + hex.EncodeToString(sum[:]),
		Creation:  spdxCreation{r.made.Format(time.RFC3339), []string{"Tool: " + name + "-release"}},
		Packages: []spdxPackage{{
			ID: "SPDXRef-Program", Name: name, Version: r.version, Download: noAssertion, LicenceConcluded: "MIT", LicenceDeclared: "MIT", Copyright: noAssertion,
			Purpose: "APPLICATION", SourceInfo: "commit " + r.commit, Checksums: []spdxChecksum{{"SHA256", hex.EncodeToString(sum[:])}},
		}},
		Relationships: []spdxRelationship{{"SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Program"}},
	}
	for _, m := range modules {
		one := spdxPackage{
			ID: "SPDXRef-Module-" + notInSPDXIDs.ReplaceAllString(m.path, "-"), Name: m.path, Version: m.version, Download: noAssertion,
			LicenceConcluded: m.licence, LicenceDeclared: m.licence, Copyright: noAssertion, Purpose: "LIBRARY",
			References: []spdxReference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + m.path + "@" + m.version}},
		}
		if m.sum != "" {
			one.SourceInfo = "go.sum " + m.sum
		}
		document.Packages = append(document.Packages, one)
		document.Relationships = append(document.Relationships, spdxRelationship{"SPDXRef-Program", "CONTAINS", one.ID})
	}
	text, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.path(title+".spdx.json"), append(text, '\n'), 0o644)
}
