package conventions

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// TestPackageDocs: every package has exactly one package comment.
func TestPackageDocs(t *testing.T) {
	docs := map[string]int{}
	for _, s := range all(t) {
		if s.test {
			continue
		}
		docs[s.dir] += 0
		if s.ast.Doc == nil {
			continue
		}
		docs[s.dir]++
		want := "Package " + s.ast.Name.Name + " "
		if s.ast.Name.Name == "main" {
			want = "Command "
		}
		if !strings.HasPrefix(s.ast.Doc.Text(), want) {
			t.Errorf("%s: the package's documentation does not begin with %q", s.path, want)
		}
	}
	for dir, n := range docs {
		if n != 1 {
			t.Errorf("%s: %d files document the package; one should", dir, n)
		}
	}
}

// TestExportedDocs: every exported name has a comment.
func TestExportedDocs(t *testing.T) {
	for _, s := range all(t) {
		if s.test || s.ast.Name.Name == "main" {
			continue
		}
		for _, decl := range s.ast.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil && plain[d.Name.Name] {
					continue
				}
				if d.Name.IsExported() && exportedReceiver(d) && !documents(d.Doc, d.Name.Name) {
					t.Errorf("%s: %s lacks a comment that begins with its name", s.line(d), d.Name.Name)
				}
			case *ast.GenDecl:
				checkDecl(t, s, d)
			}
		}
	}
}

// checkDecl checks types, constants and variables; a comment on a group of values is enough for all of them.
func checkDecl(t *testing.T, s source, d *ast.GenDecl) {
	t.Helper()
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			doc := spec.Doc
			if doc == nil && !d.Lparen.IsValid() {
				doc = d.Doc
			}
			if spec.Name.IsExported() && !documents(doc, spec.Name.Name) {
				t.Errorf("%s: %s lacks a comment that begins with its name", s.line(spec), spec.Name.Name)
			}
		case *ast.ValueSpec:
			for _, name := range spec.Names {
				if name.IsExported() && d.Doc == nil && spec.Doc == nil && spec.Comment == nil && d.Tok != token.IMPORT {
					t.Errorf("%s: %s lacks a comment", s.line(spec), name.Name)
				}
			}
		}
	}
}

// exportedReceiver reports whether a function has no receiver or one of an exported type.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	e := d.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return true
		}
	}
}

// plain are methods whose contract is their interface's.
var plain = map[string]bool{"String": true, "Error": true, "Unwrap": true, "Is": true, "Close": true}

// documents reports whether a comment is about name. An article may come first.
func documents(doc *ast.CommentGroup, name string) bool {
	text := doc.Text()
	for _, article := range []string{"", "A ", "An ", "The "} {
		if rest, ok := strings.CutPrefix(text, article+name); ok && (rest == "" || strings.ContainsRune(" ,.:'\n", rune(rest[0]))) {
			return true
		}
	}
	return false
}
