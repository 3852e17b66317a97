package main

func helpAbout(string) error { return nil }
