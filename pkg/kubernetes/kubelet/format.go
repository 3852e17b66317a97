package kubelet

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
)

// decode reads a KubeletConfiguration strictly and applies upstream's defaults.
func decode(data []byte) (*kubeletconfig.KubeletConfiguration, error) {
	_, codecs, err := scheme.NewSchemeAndCodecs(serializer.EnableStrict)
	if err != nil {
		return nil, err
	}
	obj, kind, err := codecs.UniversalDecoder().Decode(data, nil, nil)
	switch {
	case runtime.IsMissingKind(err), runtime.IsMissingVersion(err):
		return nil, fmt.Errorf("it has to begin with apiVersion: %s and kind: KubeletConfiguration", kubeletv1.SchemeGroupVersion)
	case err != nil:
		return nil, err
	}
	config, ok := obj.(*kubeletconfig.KubeletConfiguration)
	if !ok {
		return nil, fmt.Errorf("it is a %s, not a KubeletConfiguration", kind.Kind)
	}
	return config, nil
}

// encode returns a configuration, with drop-ins, flags and defaults, in upstream's format.
func encode(config *kubeletconfig.KubeletConfiguration) ([]byte, error) {
	_, codecs, err := scheme.NewSchemeAndCodecs()
	if err != nil {
		return nil, err
	}
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		return nil, errors.New("the kubelet's configuration cannot be encoded as JSON")
	}
	data, err := runtime.Encode(codecs.EncoderForVersion(info.Serializer, kubeletv1.SchemeGroupVersion), config)
	if err != nil {
		return nil, fmt.Errorf("encoding its configuration: %w", err)
	}
	return data, nil
}
